// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/measure_links.hpp"

#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

namespace vocabpipe {

namespace {

struct Times {
    int64_t median = 0;
    int64_t fastest = 0;
};

Times times_of(std::vector<int64_t> values) {
    std::sort(values.begin(), values.end());
    return {values[values.size() / 2], values.front()};
}

class Links {
public:
    Links(Communicator& communicator, Device& device, Transport& transport)
        : communicator_(communicator),
          device_(device),
          transport_(transport),
          rank_(communicator.rank()),
          size_(communicator.size()) {
        everybody_.resize(static_cast<size_t>(size_));
        std::iota(everybody_.begin(), everybody_.end(), 0);
    }

    /// Half of a round trip between ranks r and r + 1, for the slowest such pair.
    Times message(int64_t bytes, int repetitions) {
        const DeviceMemory out_memory = allocate(bytes);
        const DeviceMemory in_memory = allocate(bytes);
        const std::span<std::byte> out = out_memory.bytes();
        const std::span<std::byte> in = in_memory.bytes();
        Times slowest;
        for (int source = 0; source + 1 < size_; ++source) {
            const std::array<int, 2> there{source, source + 1};
            const std::array<int, 2> back{source + 1, source};
            communicator_.barrier();
            std::vector<int64_t> halves;
            for (int i = 0; i < repetitions + kWarmUp; ++i) {
                const int64_t begin = now_ns();
                if (rank_ == source) {
                    send(there, out);
                    receive(back, in);
                } else if (rank_ == source + 1) {
                    receive(there, in);
                    send(back, out);
                }
                if (i >= kWarmUp) halves.push_back((now_ns() - begin) / 2);
            }
            if (rank_ == source) slowest = times_of(halves);
        }
        return largest_of_all(slowest);
    }

    /// From leaving a barrier until the slowest rank is done.
    Times collective(Do what, int64_t bytes, int repetitions) {
        const DeviceMemory out_memory = allocate(bytes);
        const DeviceMemory in_memory = allocate(bytes * size_);
        const std::span<std::byte> out = out_memory.bytes();
        const std::span<std::byte> in = in_memory.bytes();
        std::vector<int64_t> begins;
        std::vector<int64_t> durations;
        for (int i = 0; i <= size_; ++i) {
            // all_to_all: blocks of the partial sum; gather: each rank's part of the whole.
            begins.push_back(what == Do::all_to_all ? bytes * i / size_ : bytes * i);
        }
        Transfer transfer{.what = what,
                          .channel = Channel::collective,
                          .ranks = everybody_,
                          .root = 0,
                          .send = out,
                          .receive = what == Do::broadcast ? out : in,
                          .block_begin = begins};
        if (what == Do::all_to_all) {
            const int64_t mine =
                begins[static_cast<size_t>(rank_) + 1] - begins[static_cast<size_t>(rank_)];
            transfer.receive = in.first(static_cast<size_t>(mine * size_));
        }
        for (int i = 0; i < repetitions + kWarmUp; ++i) {
            communicator_.barrier();
            const int64_t begin = now_ns();
            wait(transport_.start(transfer), what);
            if (i >= kWarmUp) durations.push_back(now_ns() - begin);
        }
        return largest_of_all(times_of(durations));
    }

private:
    static constexpr int kWarmUp = 2;  ///< first touch of the memory, connections

    void send(const std::array<int, 2>& pair, std::span<const std::byte> bytes) {
        wait(transport_.start({.what = Do::send,
                               .channel = Channel::collective,
                               .ranks = pair,
                               .root = -1,
                               .send = bytes,
                               .receive = {},
                               .block_begin = {}}),
             Do::send);
    }
    void receive(const std::array<int, 2>& pair, std::span<std::byte> bytes) {
        wait(transport_.start({.what = Do::receive,
                               .channel = Channel::collective,
                               .ranks = pair,
                               .root = -1,
                               .send = {},
                               .receive = bytes,
                               .block_begin = {}}),
             Do::receive);
    }

    DeviceMemory allocate(int64_t bytes) {
        return device_.allocate(static_cast<uint64_t>(bytes), "messages to measure links with");
    }

    void wait(Ticket ticket, Do what) {
        try {
            wait_for(ticket, what);
        } catch (const Error&) {
            transport_.cancel();  // before its memory is freed
            throw;
        }
    }
    void wait_for(Ticket ticket, Do what) {
        bool started = false;  // on streams, means enqueued
        const IdleWait::Verdict verdict = poll_until(communicator_.wait_options(), [&] {
            started = started || transport_.test(ticket);
            if (started && device_.idle()) return true;
            transport_.check_health();
            return false;
        });
        if (verdict != IdleWait::Verdict::go_on) {
            throw CommunicationError("rank " + std::to_string(rank_) +
                                     ": measuring links: waiting for " +
                                     std::string(to_string(what)) + "; " +
                                     (verdict == IdleWait::Verdict::interrupted
                                          ? "interrupted"
                                          : "no progress within --distributed-timeout-seconds"));
        }
    }

    Times largest_of_all(const Times& mine) {
        Times largest;
        for (const auto& part : communicator_.all_gather(std::as_bytes(std::span(&mine, 1)))) {
            Times one;
            std::memcpy(&one, part.data(), sizeof one);
            largest.median = std::max(largest.median, one.median);
            largest.fastest = std::max(largest.fastest, one.fastest);
        }
        return largest;
    }

    Communicator& communicator_;
    Device& device_;
    Transport& transport_;
    int rank_, size_;
    std::vector<int> everybody_;
};

}  // namespace

LinkTimes measure_links(Communicator& communicator, Device& device, Transport& transport,
                        const MeasureLinksOptions& options) {
    LinkTimes result;
    const int size = communicator.size();
    if (size == 1) return result;
    Links links(communicator, device, transport);
    const auto add = [&](Do what, int ranks, int64_t bytes, const Times& times) {
        result.median.push_back({.what = what, .ranks = ranks, .bytes = bytes, .ns = times.median});
        result.fastest.push_back(
            {.what = what, .ranks = ranks, .bytes = bytes, .ns = times.fastest});
    };
    for (const int64_t bytes : options.bytes) {
        add(Do::send, 2, bytes, links.message(bytes, options.repetitions));
    }
    if (!options.collectives) return result;
    for (const Do what : {Do::broadcast, Do::all_gather, Do::all_to_all, Do::gather}) {
        for (const int64_t bytes : options.bytes) {
            add(what, size, bytes, links.collective(what, bytes, options.repetitions));
        }
    }
    return result;
}

void fit_links(const std::vector<LinkSample>& samples, int64_t bytes, TableCosts& costs) {
    const LinkSample* shortest = nullptr;
    const LinkSample* nearest = nullptr;
    for (const LinkSample& sample : samples) {
        if (sample.what != Do::send) continue;
        if (shortest == nullptr || sample.bytes < shortest->bytes) shortest = &sample;
        const auto away = [&](const LinkSample& s) { return std::abs(s.bytes - bytes); };
        if (nearest == nullptr || away(sample) < away(*nearest)) nearest = &sample;
    }
    if (shortest == nullptr) return;
    costs.latency_ns = shortest->ns;
    const int64_t transfer = std::max<int64_t>(nearest->ns - shortest->ns, 1);
    costs.bytes_per_ns = nearest == shortest
                             ? 0
                             : static_cast<double>(nearest->bytes) / static_cast<double>(transfer);
}

}  // namespace vocabpipe
