#include "FileReply.h"

#include <sys/stat.h>

#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "Conditions.h"
#include "workflow/HttpUtil.h"
#include "workflow/StringUtil.h"

namespace {

// What is sent is in memory until it has been sent. A larger file is sent in ranges, each of which
// may be shorter than what was asked for (RFC 9110, 15.3.7); whole, it is refused.
constexpr off_t kMaxBytes = 64 * 1024 * 1024;

const char* type_of(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kTypes[] = {
      {"css", "text/css; charset=utf-8"},
      {"gif", "image/gif"},
      {"html", "text/html; charset=utf-8"},
      {"ico", "image/vnd.microsoft.icon"},
      {"jpeg", "image/jpeg"},
      {"jpg", "image/jpeg"},
      {"js", "text/javascript"},
      {"json", "application/json"},
      {"md", "text/markdown"},
      {"mp4", "video/mp4"},
      {"pdf", "application/pdf"},
      {"png", "image/png"},
      {"svg", "image/svg+xml"},
      {"txt", "text/plain; charset=utf-8"},
      {"wasm", "application/wasm"},
      {"webp", "image/webp"},
      {"xml", "application/xml"}};
  const size_t dot = name.find_last_of("./");
  const std::string end = dot == std::string::npos ? "" : name.substr(dot);
  for (const auto& [extension, type] : kTypes) {
    if (end == std::string(".") + extension) return type;
  }
  return "application/octet-stream";
}

// One request on its way through the tasks of its series. They share it; the last is the request's
// own task, which keeps it until the body has been sent.
class FileReply : public std::enable_shared_from_this<FileReply> {
 public:
  FileReply(WFHttpTask* task, const Folder& folder) : task_(task), folder_(folder) {}

  void begin();

 private:
  void found();
  void send_file();
  void read_more();
  void has_read(const WFFileIOTask* read);
  void finish();
  void fail(int status);

  void set(const char* name, const std::string& value) {
    task_->get_resp()->set_header_pair(name, value.c_str());
  }

  WFHttpTask* const task_;
  const Folder& folder_;
  std::string name_;
  OpenFile file_;
  Validators validators_;
  int status_ = 0;  // of the reply, as far as it is known
  Range range_ = {};
  std::unique_ptr<char[]> body_;
  off_t has_ = 0;  // bytes of the body
};

void FileReply::begin() {
  const std::string_view method = task_->get_req()->get_method();
  if (method != HttpMethodGet && method != HttpMethodHead) {
    set("Allow", "GET, HEAD");
    return fail(HttpStatusMethodNotAllowed);
  }
  status_ = name_of(task_->get_req()->get_request_uri(), name_);
  if (status_ != HttpStatusOK) return fail(status_);

  // The body points into this object.
  task_->set_callback([self = shared_from_this()](WFHttpTask*) {});
  // Not here: looking up a name may wait for a disk as well as reading does.
  status_ = HttpStatusServiceUnavailable;  // stands when the process ends before it has run
  WFGoTask* find = WFTaskFactory::create_go_task("files", [self = shared_from_this()] {
    self->status_ = self->folder_.find(self->name_, self->file_);
  });
  find->set_callback([self = shared_from_this()](WFGoTask*) { self->found(); });
  series_of(task_)->push_back(find);
}

void FileReply::found() {
  if (status_ == HttpStatusMovedPermanently) {
    // Made from the name, not from the target: that "//host" is no file keeps it on this server.
    std::string location;
    for (const std::string& segment : StringUtil::split(name_, '/'))
      location += "/" + StringUtil::url_encode_component(segment);
    set("Location", location + "/");
  }
  if (status_ == HttpStatusOK) return send_file();
  fail(status_);
}

void FileReply::send_file() {
  const protocol::HttpHeaderMap fields(task_->get_req());
  const off_t size = file_.facts.st_size;
  const bool is_head = std::string_view(task_->get_req()->get_method()) == HttpMethodHead;
  validators_ = validators_of(file_.facts, std::time(nullptr));
  range_ = {0, size};
  status_ = check_conditions(fields, validators_);
  if (status_ == HttpStatusPreconditionFailed) return fail(status_);
  if (status_ == HttpStatusNotModified) return finish();

  if (!is_head) status_ = check_range(fields, validators_, size, range_);
  if (status_ == HttpStatusRequestedRangeNotSatisfiable) {
    set("Content-Range", "bytes */" + std::to_string(size));
    return fail(status_);
  }
  if (status_ == HttpStatusPartialContent) range_.size = std::min(range_.size, kMaxBytes);
  if (range_.size > kMaxBytes) return fail(HttpStatusForbidden);
  if (is_head || range_.size == 0) return finish();
  body_.reset(new (std::nothrow) char[static_cast<size_t>(range_.size)]);
  if (!body_) return fail(HttpStatusServiceUnavailable);
  read_more();
}

// A task of the request's series: no thread waits for the disk, and the reply waits for the task.
void FileReply::read_more() {
  series_of(task_)->push_back(WFTaskFactory::create_pread_task(
      file_.fd, body_.get() + has_, static_cast<size_t>(range_.size - has_), range_.first + has_,
      [self = shared_from_this()](WFFileIOTask* read) { self->has_read(read); }));
}

void FileReply::has_read(const WFFileIOTask* read) {
  if (read->get_state() == WFT_STATE_SYS_ERROR) return fail(HttpStatusInternalServerError);
  // The process ends, or the file has become shorter.
  if (read->get_retval() <= 0) return fail(HttpStatusServiceUnavailable);
  has_ += read->get_retval();
  if (has_ < range_.size) return read_more();

  // What was read is what the tag says, if nothing has changed meanwhile.
  struct stat now = {};
  if (::fstat(file_.fd, &now) != 0) return fail(HttpStatusInternalServerError);
  if (!validators_.etag.empty() && validators_of(now, std::time(nullptr)).etag != validators_.etag)
    return fail(HttpStatusServiceUnavailable);
  task_->get_resp()->append_output_body_nocopy(body_.get(), static_cast<size_t>(range_.size));
  finish();
}

void FileReply::finish() {
  protocol::HttpUtil::set_response_status(task_->get_resp(), status_);
  if (!validators_.etag.empty()) set("ETag", validators_.etag);
  if (status_ == HttpStatusNotModified) return;
  if (validators_.modified) set("Last-Modified", to_http_date(*validators_.modified));
  set("Accept-Ranges", "bytes");
  set("Content-Type", type_of(file_.name));
  set("X-Content-Type-Options", "nosniff");  // so that browsers do not guess a type
  set("Content-Length", std::to_string(range_.size));
  if (status_ == HttpStatusPartialContent) {
    set("Content-Range", "bytes " + std::to_string(range_.first) + "-" +
                             std::to_string(range_.first + range_.size - 1) + "/" +
                             std::to_string(file_.facts.st_size));
  }
}

void FileReply::fail(int status) {
  protocol::HttpResponse* response = task_->get_resp();
  protocol::HttpUtil::set_response_status(response, status);
  set("Content-Type", "text/plain; charset=utf-8");
  response->append_output_body(std::to_string(status) + " " + response->get_reason_phrase() + "\n");
}

}  // namespace

void reply_with_file(WFHttpTask* task, const Folder& folder) {
  std::make_shared<FileReply>(task, folder)->begin();
}
