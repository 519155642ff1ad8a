#include "benchmarks/process_group.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace ttbench {

// gloo's types are only named here: its headers need not be of the version in LibTorch.
struct ProcessGroup::Backend {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

ProcessGroup::ProcessGroup(const std::string& rendezvous, int rank, int size)
    : backend_(std::make_unique<Backend>()) {
  const auto store = c10::make_intrusive<c10d::FileStore>(rendezvous, size);
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::minutes(1));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  backend_->group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::AllReduce(std::vector<at::Tensor> tensors) {
  if (!tensors.empty()) backend_->group->allreduce_coalesced(tensors)->wait();
}

std::optional<Traffic> TcpTraffic() {
  DIR* const directory = opendir("/proc/self/fd");
  if (!directory) return std::nullopt;
  Traffic traffic;
  bool counted = true;
  while (const dirent* entry = readdir(directory)) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int file = std::atoi(entry->d_name);
    if (getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    counted &= size >= offsetof(tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent;
    traffic.sent_bytes += static_cast<int64_t>(info.tcpi_bytes_sent);
    traffic.received_bytes += static_cast<int64_t>(info.tcpi_bytes_received);
  }
  closedir(directory);
  if (!counted) return std::nullopt;
  return traffic;
}

}  // namespace ttbench
