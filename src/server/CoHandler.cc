#include "workflow/detail/CoHandler.h"

#include <new>

#include "workflow/WFServerTask.h"

namespace workflow {

namespace {

using HandledRequest = WFServerTask<protocol::HttpRequest, protocol::HttpResponse>;

}  // namespace

void serve_request(WFHttpTask* request, CoHandlerBase* handler) {
  series_of(request)->push_front(handler);  // from now on the series owns it
  request->cancel_on_closed();
}

void CoHandlerBase::ended(CoFrame* /*frame*/, std::exception_ptr exception) noexcept {
  HandledRequest* const request = exception ? dynamic_cast<HandledRequest*>(request_) : nullptr;
  if (!request) return;
  if (request->has_stream()) {
    request->noreply();  // an incomplete reply must not look complete
    return;
  }
  bool replies = false;
  try {
    *request->get_resp() = protocol::HttpResponse();
    replies = request->get_resp()->set_status_code("500");
    request->set_keep_alive(0);
  } catch (const std::bad_alloc&) {
    replies = false;
  }
  if (!replies) {
    request->noreply();  // the connection is closed without a reply
  }
}

}  // namespace workflow
