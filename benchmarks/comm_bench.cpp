// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/comm_bench.hpp"

#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::bench {

namespace {

/// The byte that `rank` sends at position i: distinguishes ranks, neighbours and multiples of 256.
std::byte pattern(int rank, int64_t i) {
    const auto mixed = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL +
                       static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9ULL;
    return static_cast<std::byte>(mixed >> 56);
}

class Runner {
public:
    Runner(Communicator& communicator, Device& device, Transport& transport, const CommCase& which)
        : communicator_(communicator),
          device_(device),
          transport_(transport),
          operation_(which.operation),
          rank_(communicator.rank()),
          size_(communicator.size()) {
        everybody_.resize(static_cast<size_t>(size_));
        std::iota(everybody_.begin(), everybody_.end(), 0);
        block_ = one_block() ? which.bytes : which.bytes / size_;
        block_ = std::max<int64_t>(block_, 1);
        for (int i = 0; i <= size_; ++i) block_begin_.push_back(block_ * i);
        const bool sends_all = operation_ == Operation::all_to_all;
        out_ = allocate(sends_all ? block_ * size_ : block_);
        in_ = allocate(one_block() ? block_ : block_ * size_);
        std::vector<std::byte> data(out_.size());
        for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(rank_, static_cast<int64_t>(i));
        device_.upload(data, out_.data());
        list_transfers();
    }

    [[nodiscard]] int64_t block() const { return block_; }
    [[nodiscard]] int64_t total() const { return one_block() ? block_ : block_ * size_; }
    [[nodiscard]] double bus_factor() const {
        return one_block() ? 1.0 : static_cast<double>(size_ - 1) / size_;
    }

    /// Starts the operation and waits until it is complete, or on streams until it is enqueued.
    void enqueue() {
        std::vector<Ticket> tickets;
        for (const Transfer& transfer : transfers_) tickets.push_back(transport_.start(transfer));
        wait([&] {
            std::erase_if(tickets, [&](Ticket ticket) { return transport_.test(ticket); });
            return tickets.empty();
        });
    }
    void finish() {
        wait([&] { return device_.idle(); });
    }

    /// Seconds per operation on this rank, over `iterations` of them.
    double time(int iterations) {
        communicator_.barrier();
        const int64_t begin = now_ns();
        for (int i = 0; i < iterations; ++i) enqueue();
        finish();
        return static_cast<double>(now_ns() - begin) * 1e-9 / iterations;
    }

    /// Runs once into cleared memory; returns the wrong bytes on this rank.
    int64_t count_wrong() {
        std::vector<std::byte> got(in_.size());
        device_.upload(got, in_.data());
        communicator_.barrier();
        enqueue();
        finish();
        device_.download(in_.data(), got);
        int64_t wrong = 0;
        const auto check = [&](int64_t at, int source, int64_t first) {
            for (int64_t i = 0; i < block_; ++i) {
                wrong += got[static_cast<size_t>(at + i)] == pattern(source, first + i) ? 0 : 1;
            }
        };
        switch (operation_) {
            case Operation::sendrecv:
                check(0, (rank_ + size_ - 1) % size_, 0);
                break;
            case Operation::broadcast:
                if (rank_ != 0) check(0, 0, 0);
                break;
            case Operation::all_gather:
                for (int i = 0; i < size_; ++i) check(block_ * i, i, 0);
                break;
            case Operation::all_to_all:
                for (int i = 0; i < size_; ++i) check(block_ * i, i, block_ * rank_);
                break;
            case Operation::gather:
                for (int i = 0; i < size_ && rank_ == 0; ++i) check(block_ * i, i, 0);
                break;
        }
        return wrong;
    }

private:
    [[nodiscard]] bool one_block() const {
        return operation_ == Operation::sendrecv || operation_ == Operation::broadcast;
    }

    DeviceMemory allocate(int64_t bytes) {
        return device_.allocate(static_cast<uint64_t>(bytes), "messages of the benchmark");
    }

    void list_transfers() {
        if (operation_ == Operation::sendrecv) {
            list_ring();
            return;
        }
        Transfer transfer{.channel = Channel::collective,
                          .ranks = everybody_,
                          .root = 0,
                          .send = out_.bytes(),
                          .receive = in_.bytes(),
                          .block_begin = block_begin_};
        switch (operation_) {
            case Operation::broadcast:
                transfer.what = Do::broadcast;
                // In place: the root keeps its data, the others receive theirs.
                if (rank_ == 0) transfer.receive = out_.bytes();
                if (rank_ != 0) transfer.send = in_.bytes();
                break;
            case Operation::all_gather:
                transfer.what = Do::all_gather;
                break;
            case Operation::all_to_all:
                transfer.what = Do::all_to_all;
                break;
            case Operation::gather:
                transfer.what = Do::gather;
                break;
            case Operation::sendrecv:
                break;
        }
        transfers_.push_back(transfer);
    }

    /// Message i goes from rank i to the next one. Neighbouring messages in the ring are on
    /// different channels, so that a rank sends and receives at once; each rank starts its two in
    /// the order of i, as programs do.
    void list_ring() {
        for (int i = 0; i < size_; ++i) {
            const int to = (i + 1) % size_;
            if (rank_ != i && rank_ != to) continue;
            const auto& pair = pairs_[static_cast<size_t>(rank_ == i ? 0 : 1)] = {i, to};
            transfers_.push_back({.what = rank_ == i ? Do::send : Do::receive,
                                  .channel = i % 2 == 0 ? Channel::forward : Channel::backward,
                                  .ranks = pair,
                                  .send = rank_ == i ? out_.bytes() : std::span<std::byte>{},
                                  .receive = rank_ == i ? std::span<std::byte>{} : in_.bytes()});
        }
    }

    template <typename Done>
    void wait(Done&& done) {
        IdleWait idle(communicator_.wait_options());
        while (!done()) {
            transport_.check_health();
            const IdleWait::Verdict verdict = idle.pause();
            if (verdict == IdleWait::Verdict::go_on) continue;
            transport_.cancel();  // before its memory is freed
            throw CommunicationError("rank " + std::to_string(rank_) + ": waits for " +
                                     kOperationNames[static_cast<size_t>(operation_)] + "; " +
                                     (verdict == IdleWait::Verdict::interrupted
                                          ? "interrupted"
                                          : "no progress within --distributed-timeout-seconds"));
        }
    }

    Communicator& communicator_;
    Device& device_;
    Transport& transport_;
    Operation operation_;
    int rank_, size_;
    int64_t block_ = 0;
    std::vector<int> everybody_;
    std::vector<int64_t> block_begin_;
    std::array<std::array<int, 2>, 2> pairs_{};  ///< (from, to) of the message sent, and received
    DeviceMemory out_, in_;
    std::vector<Transfer> transfers_;
};

}  // namespace

CommTiming time_operation(Communicator& communicator, Device& device, Transport& transport,
                          const CommCase& which) {
    Runner runner(communicator, device, transport, which);
    for (int i = 0; i < which.warmup; ++i) runner.enqueue();
    runner.finish();
    struct Mine {
        double seconds;
        int64_t wrong;
    };
    Mine mine{};
    mine.seconds = runner.time(which.iterations);
    mine.wrong = runner.count_wrong();
    CommTiming timing{.bytes = runner.total(), .count = runner.block()};
    for (const auto& part : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
        Mine one{};
        std::memcpy(&one, part.data(), sizeof one);
        timing.seconds = std::max(timing.seconds, one.seconds);
        timing.wrong += one.wrong;
    }
    timing.algorithm_bandwidth = static_cast<double>(timing.bytes) * 1e-9 / timing.seconds;
    timing.bus_bandwidth = timing.algorithm_bandwidth * runner.bus_factor();
    return timing;
}

}  // namespace vocabpipe::bench
