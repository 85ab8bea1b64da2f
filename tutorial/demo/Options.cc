#include "Options.h"

#include <getopt.h>

#include <charconv>
#include <cstdio>
#include <string_view>

namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxGraceSeconds = 24 * 3600;

constexpr char kUsage[] =
    "usage: tutorial-demo [port] [--grace seconds] [--store URL]\n"
    "\n"
    "  port               to listen on at 127.0.0.1; default 8080, 0 chooses a free one\n"
    "  --grace seconds    how long SIGINT and SIGTERM let delayed replies wait for their time;\n"
    "                     the others are then answered at once as aborted; default 10\n"
    "  --store URL        keeps reminders in that store, such as sqlite:demo.db; default none\n";

std::optional<int> parse_number(std::string_view text, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max) {
    return std::nullopt;
  }
  return value;
}

std::nullopt_t refuse(const char* what, const char* argument) {
  std::fprintf(stderr, "tutorial-demo: %s: '%s'\n%s", what, argument, kUsage);
  return std::nullopt;
}

}  // namespace

std::optional<Options> parse_options(int argc, char* argv[], int& exit_code) {
  static const struct option kLongOptions[] = {{"grace", required_argument, nullptr, 'g'},
                                               {"store", required_argument, nullptr, 's'},
                                               {"help", no_argument, nullptr, 'h'},
                                               {nullptr, 0, nullptr, 0}};
  Options options;
  exit_code = 2;
  for (int option; (option = ::getopt_long(argc, argv, "h", kLongOptions, nullptr)) != -1;) {
    if (option == 'h') {
      std::fputs(kUsage, stdout);
      exit_code = 0;
      return std::nullopt;
    }
    if (option == 's') {
      options.store = optarg;
      if (options.store.empty()) {
        return refuse("--store takes a URL", optarg);
      }
      continue;
    }
    if (option != 'g') {
      std::fputs(kUsage, stderr);
      return std::nullopt;
    }
    const auto seconds = parse_number(optarg, kMaxGraceSeconds);
    if (!seconds) {
      return refuse("--grace takes whole seconds from 0 to 86400", optarg);
    }
    options.grace = std::chrono::seconds(*seconds);
  }
  if (optind < argc) {
    const auto port = parse_number(argv[optind], kMaxPort);
    if (!port) {
      return refuse("the port is a number from 0 to 65535", argv[optind]);
    }
    options.port = static_cast<unsigned short>(*port);
    optind++;
  }
  if (optind < argc) {
    return refuse("too many arguments", argv[optind]);
  }
  return options;
}
