#include "workflow/detail/CoHandler.h"

#include "workflow/WFServerTask.h"

namespace workflow {

namespace {

using HandledRequest = WFServerTask<protocol::HttpRequest, protocol::HttpResponse>;

}  // namespace

void serve_request(WFHttpTask* request, CoHandlerBase* handler) {
  request->cancel_on_closed();
  series_of(request)->push_front(handler);
}

void CoHandlerBase::ended(CoFrame* /*frame*/, std::exception_ptr exception) noexcept {
  if (!exception) {
    return;
  }
  const auto* const request = dynamic_cast<HandledRequest*>(request_);
  if (request && request->has_stream()) {
    request_->noreply();  // an incomplete reply must not look complete
    return;
  }
  *request_->get_resp() = protocol::HttpResponse();
  request_->get_resp()->set_status_code("500");
  request_->set_keep_alive(0);
}

}  // namespace workflow
