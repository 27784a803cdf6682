// SPDX-License-Identifier: Apache-2.0
// When a modelled link lets messages be seen. All times are ten seconds or more away from now, so
// that no machine is too slow for these tests, and the transport below is done at once.
#include "src/runtime/transport/modelled_link.hpp"

#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace vocabpipe {
namespace {

constexpr double kTurnNs = 20e9;
constexpr size_t kMessageBytes = 100;
constexpr double kOneTurnEach = static_cast<double>(kMessageBytes) / kTurnNs;  // bytes per ns
constexpr double kAtOnce = 1e9;

int64_t turns(double count) {
    return static_cast<int64_t>(count * kTurnNs);
}

/// Everything that is started on it is done. Receives of stamps find those that were set.
class InstantTransport final : public Transport {
public:
    [[nodiscard]] int rank() const override { return 1; }
    [[nodiscard]] int size() const override { return 2; }
    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        started.push_back(transfer);
        if (transfer.what == Do::receive && transfer.receive.size() == sizeof(int64_t)) {
            std::memcpy(transfer.receive.data(), &stamps.front(), sizeof(int64_t));
            stamps.pop_front();
        }
        return static_cast<Ticket>(started.size() - 1);
    }
    [[nodiscard]] bool test(Ticket) override { return done; }
    void cancel() noexcept override {}
    void abort(const std::string&) noexcept override {}

    std::deque<int64_t> stamps;
    std::vector<Transfer> started;
    bool done = true;
};

/// Receives of rank 1.
class ModelledMessages : public ::testing::Test {
protected:
    void link_of(const Link& link) { link_ = make_modelled_link(inner_, link); }
    /// Receives a message that its sender started so many turns ago.
    Ticket receive(double turns_ago, Channel channel = Channel::forward) {
        inner_.stamps.push_back(now_ns() - turns(turns_ago));
        return link_->start({.what = Do::receive,
                             .channel = channel,
                             .ranks = pair_,
                             .receive = std::as_writable_bytes(std::span(bytes_))});
    }
    bool seen(Ticket ticket) { return link_->test(ticket); }

    InstantTransport inner_;
    std::unique_ptr<Transport> link_;
    std::array<int, 2> pair_{0, 1};
    std::array<char, kMessageBytes> bytes_{};
};

TEST_F(ModelledMessages, AreSeenWhenTheirBytesHaveLeftTheLink) {
    link_of({.bytes_per_ns = kOneTurnEach});
    EXPECT_TRUE(seen(receive(1.5)));
    link_of({.bytes_per_ns = kOneTurnEach});
    EXPECT_FALSE(seen(receive(0.5)));
}

TEST_F(ModelledMessages, TakeTheLinkOneAfterTheOther) {
    for (const double turns_ago : {1.5, 2.5, 3.5}) {
        link_of({.bytes_per_ns = kOneTurnEach});
        int count = 0;
        std::vector<Ticket> tickets;
        for (int i = 0; i < 4; ++i) tickets.push_back(receive(turns_ago));
        for (const Ticket ticket : tickets) count += seen(ticket) ? 1 : 0;
        EXPECT_EQ(count, static_cast<int>(turns_ago)) << "a turn each, all started at once";
    }
}

TEST_F(ModelledMessages, QueueForTheLinkAlsoBehindOnesOfEarlierLooks) {
    link_of({.bytes_per_ns = kOneTurnEach});
    EXPECT_TRUE(seen(receive(1.5)));
    EXPECT_FALSE(seen(receive(1.5)));
}

TEST_F(ModelledMessages, DoNotBeginBeforeTheyWereStarted) {
    link_of({.bytes_per_ns = kOneTurnEach});
    EXPECT_TRUE(seen(receive(3)));
    EXPECT_FALSE(seen(receive(0.5))) << "the link was free long before";
}

TEST_F(ModelledMessages, WaitForTheLatencyBesideEachOther) {
    for (const auto& [turns_ago, is_seen] : {std::pair(1.5, true), std::pair(0.5, false)}) {
        link_of({.bytes_per_ns = kAtOnce, .latency_ns = turns(1)});
        const std::array tickets{receive(turns_ago), receive(turns_ago), receive(turns_ago)};
        for (const Ticket ticket : tickets) EXPECT_EQ(seen(ticket), is_seen) << turns_ago;
    }
}

TEST_F(ModelledMessages, KeepTheLinkForThePriceOfAPieceToo) {
    link_of({.bytes_per_ns = kAtOnce, .piece_ns = turns(1)});
    const Ticket first = receive(1.5);
    const Ticket second = receive(1.5);
    EXPECT_TRUE(seen(first));
    EXPECT_FALSE(seen(second));
    link_of({.bytes_per_ns = kOneTurnEach, .latency_ns = turns(1), .piece_ns = turns(1)});
    EXPECT_FALSE(seen(receive(2.5)));
    link_of({.bytes_per_ns = kOneTurnEach, .latency_ns = turns(1), .piece_ns = turns(1)});
    EXPECT_TRUE(seen(receive(3.5)));
}

// The one that was started first on the other channel has left the link half a turn ago; the
// other one follows it.
TEST_F(ModelledMessages, TakeTheLinkInTheOrderInWhichTheyWereStarted) {
    link_of({.bytes_per_ns = kOneTurnEach});
    const Ticket later = receive(1.4, Channel::forward);
    const Ticket earlier = receive(1.5, Channel::backward);
    EXPECT_FALSE(seen(later));
    EXPECT_TRUE(seen(earlier));
}

TEST_F(ModelledMessages, AreNotSeenBeforeTheyHaveArrived) {
    link_of({.bytes_per_ns = kOneTurnEach});
    inner_.done = false;
    const Ticket ticket = receive(2);
    EXPECT_FALSE(seen(ticket));
    inner_.done = true;
    EXPECT_TRUE(seen(ticket));
}

TEST_F(ModelledMessages, CarryTheTimeOfTheirStartAheadAndDelayNoSender) {
    link_of({.bytes_per_ns = kOneTurnEach, .latency_ns = turns(1)});
    const std::array<int, 2> to{1, 0};
    const int64_t before = now_ns();
    const Ticket ticket = link_->start({.what = Do::send,
                                        .channel = Channel::backward,
                                        .ranks = to,
                                        .send = std::as_bytes(std::span(bytes_))});
    const int64_t after = now_ns();
    ASSERT_EQ(inner_.started.size(), 2U);
    int64_t stamp = 0;
    ASSERT_EQ(inner_.started[0].send.size(), sizeof stamp);
    std::memcpy(&stamp, inner_.started[0].send.data(), sizeof stamp);
    EXPECT_GE(stamp, before);
    EXPECT_LE(stamp, after);
    EXPECT_EQ(inner_.started[1].send.size(), kMessageBytes);
    for (const Transfer& transfer : inner_.started) {
        EXPECT_EQ(transfer.what, Do::send);
        EXPECT_EQ(transfer.channel, Channel::backward);
    }
    EXPECT_TRUE(link_->test(ticket));
}

TEST_F(ModelledMessages, AloneAreDelayed) {
    link_of({.bytes_per_ns = kOneTurnEach, .latency_ns = turns(1)});
    const Ticket ticket = link_->start({.what = Do::all_gather, .ranks = pair_});
    EXPECT_EQ(inner_.started.size(), 1U);
    EXPECT_TRUE(link_->test(ticket));
}

TEST(ModelledLink, RefusesARateThatIsNotPositive) {
    InstantTransport inner;
    for (const double rate : {0.0, -1.0}) {
        EXPECT_THROW((void)make_modelled_link(inner, {.bytes_per_ns = rate}), UsageError);
    }
}

}  // namespace
}  // namespace vocabpipe
