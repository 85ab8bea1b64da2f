#pragma once

#include <llhttp.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/HttpFields.h"
#include "workflow/HttpLimits.h"

// The two pieces of llhttp's work: the grammar of a complete head, and that of chunk framing.
// Lines are cut, measured and checked for their CRLF before they come here; what a message's
// fields mean for its framing is decided afterwards (HttpFraming). llhttp therefore always sees
// the same bytes in the same pieces, however they arrived.
namespace protocol {

// Parses a whole head, from the start line to the empty line, and lists its fields as views into
// `head`. Returns 0, or the status with which to refuse the message. The state of the parser is on
// the stack.
int parse_head(bool is_request, const char* head, size_t size, const HttpLimits& limits,
               HttpFields* fields);

// Parses chunk framing. The caller passes lines (trailer fields, empty lines) as a whole, and data
// in any pieces. It does not pass chunk extensions, because llhttp does not accept all that RFC
// 9112, 7.1.1 allows.
class ChunkGrammar {
 public:
  ChunkGrammar();
  ChunkGrammar(const ChunkGrammar&) = delete;
  ChunkGrammar& operator=(const ChunkGrammar&) = delete;

  // Takes the digits of a chunk-size line, and sets `*size` to their value. Returns false if they
  // are malformed.
  bool take_size(std::string_view digits, uint64_t* size);
  // Takes chunk data, the line end after it, a trailer field line, or the empty line at the end.
  // Returns false if it is malformed.
  bool take(const char* bytes, size_t length);
  // The name of the trailer field that was taken last. Empty if the last bytes were not a field.
  std::string_view trailer_name() const { return trailer_name_; }
  // Whether the empty line that ends the message was taken.
  bool is_complete() const { return complete_; }

 private:
  static int on_chunk_header(llhttp_t* parser);
  static int on_trailer_name(llhttp_t* parser, const char* at, size_t length);
  static int on_message_complete(llhttp_t* parser);
  static const llhttp_settings_t kSettings;

  llhttp_t parser_;
  std::string_view trailer_name_;
  bool size_known_ = false;
  bool complete_ = false;
};

}  // namespace protocol
