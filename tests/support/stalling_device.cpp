// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stalling_device.hpp"

#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/lanes.hpp"
#include "src/runtime/transport/forwarding_transport.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/world.hpp"

#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

namespace {

/// The dice of one rank, used by its thread only.
class Chance {
public:
    Chance(int rank, const Stalls& stalls, StallCounts* counts)
        : stalls_(stalls),
          counts_(counts),
          random_(stalls.seed * 1009 + static_cast<uint64_t>(rank)) {}

    [[nodiscard]] const Stalls& stalls() const { return stalls_; }
    [[nodiscard]] bool happens(double chance) {
        return chance > 0 && std::uniform_real_distribution<>(0, 1)(random_) < chance;
    }
    void maybe_sleep(double chance) {
        if (!happens(chance)) return;
        if (counts_ != nullptr) ++counts_->stalls;
        std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns(stalls_.stall_us)));
    }
    /// Until when the end of a transfer that starts now is not seen; 0: no such time.
    [[nodiscard]] int64_t late_until_ns() {
        if (!happens(stalls_.late_message)) return 0;
        if (counts_ != nullptr) ++counts_->late_messages;
        return now_ns() + duration_ns(stalls_.late_us);
    }

private:
    [[nodiscard]] int64_t duration_ns(double mean_us) {
        return static_cast<int64_t>(1e3 * mean_us * std::exponential_distribution<>(1)(random_));
    }

    Stalls stalls_;
    StallCounts* counts_;
    std::mt19937_64 random_;
};

/// Hands everything on to the communicator's transport, which sees each end only when it is due.
class StallingTransport final : public ForwardingTransport {
public:
    StallingTransport(Transport& inner, std::shared_ptr<Chance> chance)
        : ForwardingTransport(inner), chance_(std::move(chance)) {}

    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        const Stalls& stalls = chance_->stalls();
        const int64_t number = started_++;
        const Ticket ticket = inner().start(transfer);
        if (open_.size() <= ticket) open_.resize(ticket + 1);
        open_[ticket] = {.late_until_ns = chance_->late_until_ns(),
                         .lost = number == stalls.lost_transfer,
                         .damage = {},
                         .bit = std::byte{1}};
        if (stalls.damaged_transfer >= 0 && number >= stalls.damaged_transfer &&
            transfer.what == Do::receive) {
            open_[ticket].damage = transfer.receive.first(1);
        }
        if (is_piece(transfer) && pieces_++ == stalls.damaged_piece) {
            // One of the high bits of the mantissa of a number of either type: no sum rounds it
            // off.
            open_[ticket].damage = transfer.receive.subspan(2, 1);
            open_[ticket].bit = std::byte{0x40};
        }
        return ticket;
    }

    /// The inner ticket is gone once its end was seen, so it is asked only when that may be told.
    [[nodiscard]] bool test(Ticket ticket) override {
        const Open& open = open_[ticket];
        if (open.lost || now_ns() < open.late_until_ns) return false;
        if (chance_->happens(chance_->stalls().overlooked)) return false;
        if (!inner().test(ticket)) return false;
        if (!open.damage.empty()) open.damage.front() ^= open.bit;
        return true;
    }

private:
    struct Open {
        int64_t late_until_ns = 0;
        bool lost = false;
        std::span<std::byte> damage;  ///< a byte
        std::byte bit{1};
    };
    /// A part of what tensor ranks exchange, without what announces it.
    static bool is_piece(const Transfer& transfer) {
        constexpr size_t kAnnouncement = 16;  // bytes
        return transfer.what == Do::receive && transfer.channel == Channel::tensor &&
               transfer.receive.size() > kAnnouncement;
    }
    std::shared_ptr<Chance> chance_;
    std::vector<Open> open_;  ///< [ticket]
    int64_t started_ = 0;
    int64_t pieces_ = 0;
};

class StallingLanes final : public Lanes {
public:
    explicit StallingLanes(std::shared_ptr<Chance> chance) : chance_(std::move(chance)) {}
    void begin(Lane, uint32_t) override { chance_->maybe_sleep(chance_->stalls().before_action); }

private:
    std::shared_ptr<Chance> chance_;
};

class StallingDevice final : public ForwardingDevice {
public:
    explicit StallingDevice(std::shared_ptr<Chance> chance)
        : ForwardingDevice(make_host_device()), chance_(std::move(chance)) {}

    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        return ForwardingDevice::context(threads, [chance = chance_, poll = std::move(poll)] {
            chance->maybe_sleep(chance->stalls().in_pass);
            poll();
        });
    }
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override {
        return std::make_unique<StallingLanes>(chance_);
    }
    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& communicator) override {
        return std::make_unique<StallingTransport>(communicator.transport(), chance_);
    }

private:
    std::shared_ptr<Chance> chance_;
};

}  // namespace

std::unique_ptr<Device> make_stalling_device(int rank, const Stalls& stalls, StallCounts* counts) {
    return std::make_unique<StallingDevice>(std::make_shared<Chance>(rank, stalls, counts));
}

}  // namespace vocabpipe::testing
