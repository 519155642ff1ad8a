#include "kernels/cost/ledger.h"

#include <algorithm>
#include <utility>

#include "kernels/shape.h"

namespace ttbench::cost {

Ledger::Buffer::Buffer(Ledger* ledger, std::string name, int64_t bytes)
    : ledger_(ledger),
      name_(std::move(name)),
      bytes_(bytes),
      event_(static_cast<int64_t>(ledger->events_.size())) {}

Ledger::Buffer::~Buffer() {
  if (bytes_ == 0) return;
  ledger_->LeavePeak();
  auto& live = ledger_->live_;
  live.erase(std::find(live.begin(), live.end(), this));
  ledger_->live_bytes_ -= bytes_;
  ledger_->events_.push_back({name_, -bytes_});
}

Ledger::Handle Ledger::Allocate(std::string name, int64_t bytes) {
  const int64_t live_bytes = CheckedAdd(live_bytes_, bytes);
  const int64_t allocated_bytes = CheckedAdd(allocated_bytes_, bytes);
  Handle handle(new Buffer(this, std::move(name), bytes));
  if (bytes == 0) return handle;
  if (live_bytes <= peak_bytes_) LeavePeak();
  live_.push_back(handle.get());
  live_bytes_ = live_bytes;
  allocated_bytes_ = allocated_bytes;
  events_.push_back({handle->name(), bytes});
  if (live_bytes_ > peak_bytes_) {
    peak_bytes_ = live_bytes_;
    at_peak_ = true;
  }
  return handle;
}

void Ledger::LeavePeak() {
  if (!at_peak_) return;
  peak_terms_ = live_terms();
  at_peak_ = false;
}

void Ledger::ResetPeak() {
  peak_bytes_ = live_bytes_;
  at_peak_ = true;
}

std::vector<Term> Ledger::live_terms() const {
  std::vector<Term> terms;
  terms.reserve(live_.size());
  for (const Buffer* buffer : live_) terms.push_back({buffer->name(), buffer->bytes()});
  return terms;
}

}  // namespace ttbench::cost
