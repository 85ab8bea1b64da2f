#include "support/Program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "support/ChildProcess.h"
#include "support/Tally.h"

namespace test_support {

namespace {

constexpr char kPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr size_t kMaxFds = 16;
constexpr int kNoEnd = -1000;

// "" when there is none. An ordinary user's PATH has no folder of servers: ours has.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const std::string folders = kPath;
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string path = folders.substr(begin, end - begin) + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
    begin = end + 1;
  }
  std::fprintf(stderr, "there is no %s; script/bootstrap test installs it\n", name.c_str());
  return "";
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& each : texts) {
    pointers.push_back(const_cast<char*>(each.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork() and exec only what is safe in a signal handler: other threads' locks are held.
[[noreturn]] void become(const char* path, char* const* argv, char* const* environment,
                         const int* fds, int fd_count, int end_signal, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, end_signal);
  if (::getppid() != parent) {
    ::_exit(126);
  }
  // Out of the way first, so that none is overwritten before its turn.
  int moved[kMaxFds];
  for (int i = 0; i < fd_count; i++) {
    moved[i] = ::fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
  }
  for (int i = 0; i < fd_count; i++) {
    ::dup2(moved[i], i);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execve(path, argv, environment);
  ::_exit(127);
}

}  // namespace

Program::Program(const std::string& name, const std::vector<std::string>& arguments,
                 const ProgramOptions& options)
    : end_signal_(options.end_signal) {
  int in[2];
  int out[2];
  const std::string path = find_program(name);
  if (path.empty() || ::pipe2(in, O_CLOEXEC) != 0) return;
  const workflow::UniqueFd its_stdin(in[0]);
  stdin_.reset(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return;
  const workflow::UniqueFd its_stdout(out[1]);
  if (options.loses_output) {
    ::fcntl(out[1], F_SETFL, O_NONBLOCK);
  }
  stdout_.reset(out[0]);
  spawn(path, arguments, options, its_stdin.get(), its_stdout.get());
}

Program::~Program() {
  if (child_ > 0) {
    ::kill(child_, end_signal_);
    if (wait_for_end(std::chrono::seconds(10)) == kNoEnd) {
      ::kill(child_, SIGKILL);
      wait_for_end(std::chrono::seconds(10));
    }
  }
}

void Program::spawn(const std::string& path, const std::vector<std::string>& arguments,
                    const ProgramOptions& options, int its_stdin, int its_stdout) {
  std::vector<std::string> all = {path};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = options.environment;
  if (options.keeps_environment) {
    for (char** each = environ; *each; each++) {
      variables.emplace_back(*each);
    }
  } else {
    variables.insert(variables.end(),
                     {std::string("PATH=") + kPath, "LC_ALL=C.UTF-8", "HOME=/nonexistent"});
  }
  std::vector<int> fds = {its_stdin, its_stdout,
                          options.stderr_is_output ? its_stdout : STDERR_FILENO};
  fds.insert(fds.end(), options.inherited.begin(), options.inherited.end());
  const std::vector<char*> argv = pointers_to(all);
  const std::vector<char*> environment = pointers_to(variables);
  const pid_t parent = ::getpid();
  child_ = fds.size() <= kMaxFds ? ::fork() : -1;
  if (child_ == 0) {
    become(path.c_str(), argv.data(), environment.data(), fds.data(), static_cast<int>(fds.size()),
           end_signal_, parent);
  }
}

void Program::signal(int number) const {
  if (child_ > 0) {
    ::kill(child_, number);
  }
}

bool Program::write(std::string_view text) {
  // A reader that has left is an error here, not the end of the test.
  ::signal(SIGPIPE, SIG_IGN);
  while (!text.empty()) {
    const ssize_t n = ::write(stdin_.get(), text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Program::prints(std::string_view text, int times) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (size_t begin = 0; times > 0; times--) {
    size_t at = std::string::npos;
    while ((at = output_.find(text, begin)) == std::string::npos) {
      if (!read_some(deadline)) return false;
    }
    begin = at + text.size();
  }
  return true;
}

uint16_t Program::port() {
  const std::string before = "127.0.0.1:";
  size_t at = std::string::npos;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while ((at = output_.find(before)) == std::string::npos ||
         output_.find('\n', at) == std::string::npos) {
    if (!read_some(deadline)) return 0;
  }
  return static_cast<uint16_t>(std::strtoul(output_.c_str() + at + before.size(), nullptr, 10));
}

int Program::exit_code() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (read_some(deadline)) {
  }
  return wait_for_end(kPatience);
}

bool Program::read_some(std::chrono::steady_clock::time_point deadline) {
  return test_support::read_some(stdout_.get(), output_, deadline) == ReadEnd::kSome;
}

int Program::wait_for_end(std::chrono::milliseconds patience) {
  if (child_ <= 0) return kNoEnd;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  int status = 0;
  while (::waitpid(child_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) return kNoEnd;
    // There is no portable wait with a limit for the end of a process.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

ProgramResult run_program(const std::string& name, const std::vector<std::string>& arguments,
                          const ProgramOptions& options, std::string_view input) {
  Program program(name, arguments, options);
  program.write(input);
  program.close_stdin();
  ProgramResult result;
  result.exit_code = program.exit_code();
  result.output = program.output();
  return result;
}

}  // namespace test_support
