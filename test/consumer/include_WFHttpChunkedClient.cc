// WFHttpChunkedClient.h alone brings the other tasks.
#include "workflow/WFHttpChunkedClient.h"

void read_after_a_while(const std::string& url, WFHttpChunkedClient::extract_t extract) {
  const WFHttpChunkedClient::callback_t callback = [](WFHttpChunkedTask* task) {
    *series_of(task) << WFTaskFactory::create_empty_task();
  };
  WFHttpChunkedTask* task = WFHttpChunkedClient::create_chunked_task(url, 0, extract, callback);
  Workflow::start_series_work(WFTaskFactory::create_timer_task(1, 0, nullptr), task, nullptr);
}
