// Shows: many requests at once. Each URL is a branch of a parallel; the callback of the parallel
// has all results, in the order of the arguments.
//
// Try:   tutorial-13-parallel_wget http://example.org/ http://example.com/
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "workflow/HttpUtil.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/Workflow.h"

struct Result {
  std::string url;
  std::string outcome;
  size_t size = 0;
};

int main(int argc, char* argv[]) {
  std::vector<Result> results(static_cast<size_t>(argc - 1));
  WFFacilities::WaitGroup done(1);
  ParallelWork* parallel = Workflow::create_parallel_work([&](const ParallelWork*) {
    for (const Result& result : results) {
      std::printf("%s: %s, %zu bytes\n", result.url.c_str(), result.outcome.c_str(), result.size);
    }
    done.done();
  });
  for (size_t i = 0; i < results.size(); i++) {
    Result& result = results[i];
    result.url = argv[i + 1];
    // Each branch has its own result: nothing is shared, nothing is locked.
    WFHttpTask* task =
        WFTaskFactory::create_http_task(result.url, 5, 2, [&result](WFHttpTask* ended) {
          if (ended->get_state() == WFT_STATE_SUCCESS) {
            ended->get_resp()->get_status_code(result.outcome);
            result.size = protocol::HttpUtil::decode_chunked_body(ended->get_resp()).size();
          } else {
            result.outcome = WFGlobal::get_error_string(ended->get_state(), ended->get_error());
          }
        });
    parallel->add_series(Workflow::create_series_work(task, nullptr));
  }
  parallel->start();
  done.wait();
}
