#include <gtest/gtest.h>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

TEST(EmptyTask, HasSucceededFromTheBeginning) {
  WFEmptyTask* task = WFTaskFactory::create_empty_task();
  EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
  EXPECT_EQ(task->get_error(), 0);
  EXPECT_EQ(task->user_data, nullptr);
  EXPECT_EQ(series_of(task), nullptr);
  task->dismiss();
}

TEST(EmptyTask, StartedAloneItEnds) {
  for (int i = 0; i < 1000; i++) {
    WFTaskFactory::create_empty_task()->start();
  }
}

TEST(EmptyTask, InASeriesItPassesOn) {
  EXPECT_TRUE(probes::run(WFTaskFactory::create_empty_task()));
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  for (int i = 0; i < 100; i++) {
    series->push_back(WFTaskFactory::create_empty_task());
  }
  EXPECT_TRUE(probes::run(series));
}
