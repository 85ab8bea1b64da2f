#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "kernel/ComputePool.h"
#include "kernel/HandlerPool.h"
#include "support/Item.h"

namespace test_support {

// Posts a function to a pool.
inline void post(workflow::HandlerPool& pool, std::function<void()> function) {
  pool.post(new Item(std::move(function)));
}

inline void post(workflow::ComputePool& pool, const std::string& queue,
                 std::function<void()> function) {
  EXPECT_TRUE(pool.post(pool.queue(queue), new Item(std::move(function))));
}

}  // namespace test_support
