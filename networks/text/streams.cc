#include "networks/text/streams.h"

#include <ATen/ops/empty.h>

#include <stdexcept>
#include <string>

namespace ttbench {

Streams::Streams(const std::vector<int64_t>& ids, int64_t batch, int64_t length)
    // Each stream's last target is the word after its last token.
    : segments_((static_cast<int64_t>(ids.size()) - 1) / batch / length), length_(length) {
  if (segments_ < 1) {
    throw std::invalid_argument("a text of " + std::to_string(ids.size()) +
                                " words is too short for " + std::to_string(batch) +
                                " streams of " + std::to_string(length) + " tokens");
  }
  const int64_t tokens = segments_ * length;  // Of each stream.
  tokens_ = at::empty({tokens, batch}, at::kLong);
  targets_ = at::empty({tokens, batch}, at::kLong);
  int64_t* const token = tokens_.mutable_data_ptr<int64_t>();
  int64_t* const target = targets_.mutable_data_ptr<int64_t>();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      token[t * batch + b] = ids[b * tokens + t];
      target[t * batch + b] = ids[b * tokens + t + 1];
    }
  }
}

Segment Streams::At(int64_t i) const {
  return {tokens_.narrow(0, i * length_, length_), targets_.narrow(0, i * length_, length_)};
}

}  // namespace ttbench
