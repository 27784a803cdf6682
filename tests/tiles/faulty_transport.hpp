// SPDX-License-Identifier: Apache-2.0
// A transport that loses or repeats a message, to see that somebody notices.
#pragma once

#include "src/runtime/transport/transport.hpp"

namespace vocabpipe::testing {

enum class Fault : uint8_t {
    none,
    drop_one,    ///< a message
    drop_two,    ///< it and the next one
    double_two,  ///< it and the next one are sent, and then both again
};

/// Does its fault once, to the n-th message that is sent; all else passes through.
class FaultyTransport final : public Transport {
public:
    explicit FaultyTransport(Transport& inner) : inner_(inner) {}
    ~FaultyTransport() override {
        if (!again_.empty()) inner_.cancel();  // before the copies go
    }
    FaultyTransport(const FaultyTransport&) = delete;
    FaultyTransport& operator=(const FaultyTransport&) = delete;
    void set(Fault fault, int message) {
        fault_ = fault;
        message_ = message;
    }

    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        if (transfer.what != Do::send || fault_ == Fault::none) return inner_.start(transfer);
        const int number = sent_++;
        const int length = fault_ == Fault::drop_one ? 1 : 2;
        const bool hit = number >= message_ && number < message_ + length;
        if (fault_ == Fault::double_two) {
            const Ticket ticket = inner_.start(transfer);
            if (hit) again_.emplace_back(transfer.send.begin(), transfer.send.end());
            if (number == message_ + 1) {
                for (const std::vector<std::byte>& bytes : again_) {  // nobody tests them
                    Transfer copy = transfer;
                    copy.send = bytes;
                    (void)inner_.start(copy);
                }
            }
            return ticket;
        }
        return hit ? kLost : inner_.start(transfer);
    }
    [[nodiscard]] bool test(Ticket ticket) override {
        return ticket == kLost || inner_.test(ticket);
    }
    void check_health() override { inner_.check_health(); }
    void cancel() noexcept override { inner_.cancel(); }
    void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

private:
    static constexpr Ticket kLost = UINT32_MAX;
    Transport& inner_;
    Fault fault_ = Fault::none;
    int message_ = 0;
    int sent_ = 0;
    std::vector<std::vector<std::byte>> again_;  ///< of its own: the sender's memory may be gone
};

}  // namespace vocabpipe::testing
