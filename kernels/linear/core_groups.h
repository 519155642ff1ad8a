// Which neighbouring cores are multiplied into one, and what that costs.
#pragma once

#include <cstdint>

#include "kernels/shape.h"

namespace ttbench {

// Cores first .. last - 1.
struct CoreGroup {
  int64_t first, last;
};

// Multiply-adds that joining the group's cores from the left takes.
int64_t JoiningMacs(const TtShape& shape, const CoreGroup& group);

// The layer of two cores: those before `cut` joined, and those from it on.
TtShape JoinedShape(const TtShape& shape, int64_t cut);

// The cut at which joining both sides and contracting `batch` rows with what is left takes the
// fewest multiply-adds; the first of equals.
int64_t CheapestCut(const TtShape& shape, int64_t batch);

}  // namespace ttbench
