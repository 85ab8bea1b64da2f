#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace workflow {

// Numbers and texts as bytes, for what backends of files keep. A number takes seven bits in each
// byte, the lowest first; the highest bit says that more follow. A text is its size and its bytes.
struct StoreBytes {
  static void put(std::string& out, uint64_t value) {
    while (value >= 0x80) {
      out.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out.push_back(static_cast<char>(value));
  }
  // Small if the number is near to 0 on either side.
  static void put_signed(std::string& out, int64_t value) {
    put(out, static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  static void put(std::string& out, std::string_view text) {
    put(out, uint64_t{text.size()});
    out.append(text);
  }

  // Reads what put() has written. After the first thing that is not there, everything is 0 or
  // empty, and good() is false.
  class Reader {
   public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    uint64_t number() {
      uint64_t value = 0;
      for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes_.front());
        bytes_.remove_prefix(1);
        value |= uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) return value;
      }
      fail();
      return 0;
    }
    char byte() {
      if (bytes_.empty()) {
        fail();
        return 0;
      }
      const char byte = bytes_.front();
      bytes_.remove_prefix(1);
      return byte;
    }
    int64_t signed_number() {
      const uint64_t value = number();
      return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1)));
    }
    // Part of the bytes that are read.
    std::string_view text() {
      const uint64_t size = number();
      if (size > bytes_.size()) {
        fail();
        return {};
      }
      const std::string_view text = bytes_.substr(0, size);
      bytes_.remove_prefix(size);
      return text;
    }

    size_t left() const { return bytes_.size(); }
    bool good() const { return good_; }

   private:
    void fail() {
      good_ = false;
      bytes_ = {};
    }

    std::string_view bytes_;
    bool good_ = true;
  };
};

}  // namespace workflow
