// Processes of one machine that add up their tensors: c10d with LibTorch's gloo backend.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ttbench {

class ProcessGroup {
 public:
  // Waits for the others: `size` processes, each with a rank of its own, that name one file, which
  // must not exist before and stays. Throws c10::Error if they do not come within a minute.
  ProcessGroup(const std::string& rendezvous, int rank, int size);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Every process's tensors become the sum over all processes; they travel together. Throws
  // c10::Error if another process is gone.
  void AllReduce(std::vector<at::Tensor> tensors);

 private:
  struct Backend;
  std::unique_ptr<Backend> backend_;
};

// Bytes through this process's TCP connections so far, by the kernel's own count; none where the
// kernel does not count.
struct Traffic {
  int64_t sent_bytes = 0, received_bytes = 0;
};
std::optional<Traffic> TcpTraffic();

}  // namespace ttbench
