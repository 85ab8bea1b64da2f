#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "workflow/WFCo.h"
#include "workflow/WFHttpServer.h"
#include "workflow/detail/CoCall.h"
#include "workflow/detail/CoTask.h"

namespace workflow {

// The coroutine that serves a request (wf::serve()). If it throws, ended() answers the request.
class CoHandlerBase : public CoTask {
 protected:
  explicit CoHandlerBase(WFHttpTask *request) : request_(request) {}
  ~CoHandlerBase() override = default;

  bool takes_exceptions() const final { return true; }
  void ended(CoFrame *frame, std::exception_ptr exception) noexcept final;

  WFHttpTask *const request_;
};

template <class F>
class CoHandler final : public CoHandlerBase {
 public:
  CoHandler(std::shared_ptr<F> function, WFHttpTask *request)
      : CoHandlerBase(request), function_(std::move(function)) {}

 private:
  ~CoHandler() override = default;

  CoFrame *make_frame() override {
    return co_frame_of([this]() -> decltype(auto) { return std::invoke(*function_, request_); });
  }

  const std::shared_ptr<F> function_;
};

// Makes the coroutine the next task of the request's series.
void serve_request(WFHttpTask *request, CoHandlerBase *handler);

}  // namespace workflow
