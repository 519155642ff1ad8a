// Word numbers as a language model is trained on them: contiguous streams beside each other, read a
// segment at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ttbench {

struct Segment {
  at::Tensor tokens;   // [T, B], int64; a column is of one stream.
  at::Tensor targets;  // [T, B]: the word that follows each token.
};

// The text is cut into `batch` streams of equal length, and each of them into segments of `length`
// tokens that follow on each other; words at the end that fill no segment of every stream are left
// out.
class Streams {
 public:
  // Throws std::invalid_argument if the text is too short for one segment of each stream.
  Streams(const std::vector<int64_t>& ids, int64_t batch, int64_t length);

  int64_t segments() const { return segments_; }
  // Segment `i`, 0-based, i < segments().
  Segment At(int64_t i) const;

 private:
  at::Tensor tokens_, targets_;  // [segments * length, batch]
  int64_t segments_, length_;
};

}  // namespace ttbench
