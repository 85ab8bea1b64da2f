#include "server/PieceEnd.h"

#include "server/ReplyStream.h"

namespace workflow {

void PieceEnd::take_turn() {
  stream_->interrupt(this);
  unref();
}

}  // namespace workflow
