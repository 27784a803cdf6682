// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/clock_alignment.hpp"

#include "src/runtime/wait.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace vocabpipe {

std::vector<int64_t> clocks_ahead(std::span<const uint64_t> host,
                                  std::span<const ClockReadings> readings) {
    struct Bounds {
        int64_t least = INT64_MIN;
        int64_t most = INT64_MAX;
    };
    std::map<uint64_t, Bounds> of_host;
    const ClockReadings& first = readings.front();
    for (size_t rank = 0; rank < host.size(); ++rank) {
        Bounds& bounds = of_host[host[rank]];
        for (size_t i = 0; i < kClockRounds; ++i) {
            const BarrierTimes& mine = readings[rank][i];
            bounds.least = std::max(bounds.least, mine.enter_ns - first[i].leave_ns);
            bounds.most = std::min(bounds.most, mine.leave_ns - first[i].enter_ns);
        }
    }
    of_host[host.front()] = {0, 0};
    std::vector<int64_t> ahead;
    for (const uint64_t one : host) {
        const Bounds& bounds = of_host[one];
        ahead.push_back(bounds.least + (bounds.most - bounds.least) / 2);
    }
    return ahead;
}

uint64_t this_host() {
    std::string id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    if (id.empty()) {  // without Linux' /proc: use the host's name
        std::array<char, 256> name{};
        gethostname(name.data(), name.size() - 1);
        id = name.data();
    }
    uint64_t hash = 14695981039346656037ULL;  // FNV-1a: ranks may be different binaries
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

std::vector<int64_t> clocks_ahead_of_rank_0(Communicator& communicator, uint64_t host,
                                            const std::function<int64_t()>& clock) {
    std::vector<uint64_t> hosts;
    for (const auto& part : communicator.all_gather(std::as_bytes(std::span(&host, 1)))) {
        uint64_t one = 0;
        std::memcpy(&one, part.data(), sizeof one);
        hosts.push_back(one);
    }
    std::vector<int64_t> ahead(hosts.size(), 0);
    if (std::count(hosts.begin(), hosts.end(), host) == std::ssize(hosts)) return ahead;
    const auto now = [&] { return clock ? clock() : now_ns(); };
    ClockReadings mine;
    for (BarrierTimes& round : mine) {
        round.enter_ns = now();
        communicator.barrier();
        round.leave_ns = now();
    }
    std::vector<ClockReadings> readings;
    for (const auto& part : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
        std::memcpy(&readings.emplace_back(), part.data(), sizeof mine);
    }
    return clocks_ahead(hosts, readings);
}

}  // namespace vocabpipe
