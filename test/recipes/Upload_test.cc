#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "recipes/Recipes.h"
#include "support/TempDir.h"
#include "support/Text.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

namespace recipes_test {
namespace {

// Recipe
void save_upload(WFHttpTask* task, const std::string& path) {
  protocol::HttpUtil::set_response_status(task->get_resp(), HttpStatusInternalServerError);
  std::string part = path + ".XXXXXX";
  const int fd = mkostemp(part.data(), O_CLOEXEC);
  if (fd < 0) return;
  const auto body =
      std::make_shared<std::string>(protocol::HttpUtil::decode_chunked_body(task->get_req()));
  const auto synced = std::make_shared<bool>(false);
  const auto written = [body](WFFileIOTask* write) {
    if (write->get_retval() != static_cast<long>(body->size())) series_of(write)->cancel();
  };
  const auto ended = [task, path, part, fd, synced](const WFModuleTask*) {
    close(fd);
    const bool saved = *synced && std::rename(part.c_str(), path.c_str()) == 0;
    if (!saved) unlink(part.c_str());
    if (saved) protocol::HttpUtil::set_response_status(task->get_resp(), HttpStatusCreated);
  };
  WFModuleTask* save = WFTaskFactory::create_module_task(
      WFTaskFactory::create_pwrite_task(fd, body->data(), body->size(), 0, written), ended);
  save->sub_series()->push_back(WFTaskFactory::create_fsync_task(
      fd, [synced](WFFileSyncTask* sync) { *synced = sync->get_state() == WFT_STATE_SUCCESS; }));
  series_of(task)->push_back(save);
}
// End of recipe

using test_support::text_of;

class UploadRecipe : public testing::Test {
 protected:
  UploadRecipe() { EXPECT_TRUE(clock_stands()); }

  size_t files() const {
    const auto all = std::filesystem::directory_iterator(folder_.path(""));
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  test_support::TempDir folder_;
  const std::string path_ = folder_.path("file");
};

TEST_F(UploadRecipe, KeepsWhatWasSent) {
  const LocalServer server([this](WFHttpTask* task) { save_upload(task, path_); });
  EXPECT_EQ(post(server.url(), "text/plain", std::string(100'000, 'a'), "PUT").status, 201);
  EXPECT_EQ(text_of(path_), std::string(100'000, 'a'));
  EXPECT_EQ(post(server.url(), "text/plain", "shorter", "PUT").status, 201);
  EXPECT_EQ(text_of(path_), "shorter");
  EXPECT_EQ(post(server.url(), "text/plain", "", "PUT").status, 201);
  EXPECT_EQ(text_of(path_), "");
  EXPECT_EQ(files(), 1U);
}

TEST_F(UploadRecipe, LeavesNothingBehindWhenItFails) {
  std::filesystem::create_directory(path_);  // which no file replaces
  const LocalServer server([this](WFHttpTask* task) { save_upload(task, path_); });
  EXPECT_EQ(post(server.url(), "text/plain", "text", "PUT").status, 500);
  EXPECT_EQ(files(), 1U);
}

TEST_F(UploadRecipe, KeepsTheOldFileWhenThereIsNoRoomForTheNewOne) {
  const LocalServer server([this](WFHttpTask* task) { save_upload(task, path_); });
  EXPECT_EQ(post(server.url(), "text/plain", "old", "PUT").status, 201);
  struct rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small = {50'000, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Answer answer = post(server.url(), "text/plain", std::string(100'000, 'a'), "PUT");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(text_of(path_), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(UploadRecipe, SaysThatThereIsNoSuchFolder) {
  const LocalServer server([this](WFHttpTask* task) { save_upload(task, path_ + "/none/file"); });
  EXPECT_EQ(post(server.url(), "text/plain", "text", "PUT").status, 500);
  EXPECT_EQ(files(), 0U);
}

}  // namespace
}  // namespace recipes_test
