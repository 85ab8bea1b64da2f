#pragma once

#include <chrono>
#include <optional>
#include <string>

// What the command line asks for.
struct Options {
  unsigned short port = 8080;  // 0: one that is free
  std::chrono::seconds grace{10};
  std::string store;  // the URL of a store for reminders; empty: none
};

// Prints what is wrong to stderr, or the help that was asked for to stdout; then there are no
// options, and `exit_code` is what the program ends with.
std::optional<Options> parse_options(int argc, char* argv[], int& exit_code);
