#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "Fuzzing.h"

// Replays a corpus through a fuzzer's function, without libFuzzer, each file cut at every place.
//
//   <program> <folder of the corpus>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  // What aborts leaves its name behind.
  std::printf("%s\n", path.filename().c_str());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <folder>\n", argv[0]);
    return 2;
  }
  fuzzing::cut_everywhere = true;
  LLVMFuzzerTestOneInput(nullptr, 0);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    replay(entry.path());
    ++count;
  }
  std::printf("%d files\n", count);
  return count > 0 ? 0 : 1;
}
