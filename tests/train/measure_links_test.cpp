// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/measure_links.hpp"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>

#include "src/runtime/transport/transport.hpp"

namespace vocabpipe {
namespace {

/// Counts the transfers that it passes on, by what they are and the bytes that they send and
/// receive.
class CountingTransport final : public Transport {
public:
    explicit CountingTransport(Transport& inner) : inner_(inner) {}
    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        ++counts[std::string(to_string(transfer.what)) + ' ' +
                 std::to_string(transfer.send.size()) + ' ' +
                 std::to_string(transfer.receive.size())];
        return inner_.start(transfer);
    }
    [[nodiscard]] bool test(Ticket ticket) override { return inner_.test(ticket); }
    void check_health() override { inner_.check_health(); }
    void cancel() noexcept override { inner_.cancel(); }
    void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

    std::map<std::string, int> counts;

private:
    Transport& inner_;
};

// Two repetitions come before those that are timed.
TEST(MeasureLinks, RepeatsEveryTransferAsOftenAsAsked) {
    World::threads(3, {.timeout_seconds = 30}).run([](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        CountingTransport transport(communicator.transport());
        (void)measure_links(communicator, *device, transport,
                            {.bytes = {7, 70000}, .collectives = true, .repetitions = 3});
        const int rank = communicator.rank();
        std::map<std::string, int> expected;
        for (const auto& [bytes, of_all_to_all] :
             {std::pair(7, rank < 2 ? 6 : 9), std::pair(70000, rank < 2 ? 69999 : 70002)}) {
            const std::string one = std::to_string(bytes), all = std::to_string(3 * bytes);
            expected["send " + one + " 0"] = rank == 1 ? 10 : 5;
            expected["receive 0 " + one] = rank == 1 ? 10 : 5;
            expected["broadcast " + one + ' ' + one] = 5;
            expected["all_gather " + one + ' ' + all] = 5;
            expected["all_to_all " + one + ' ' + std::to_string(of_all_to_all)] = 5;
            expected["gather " + one + ' ' + all] = 5;
        }
        EXPECT_EQ(transport.counts, expected) << "rank " << rank;
    });
}

TEST(MeasureLinks, TimesEverySizeOfMessagesAndCollectivesAlikeOnEveryRank) {
    std::mutex mutex;
    std::vector<LinkTimes> by_rank;
    World::threads(3, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        LinkTimes mine =
            measure_links(communicator, *device, communicator.transport(),
                          {.bytes = {1, 7, 70000}, .collectives = true, .repetitions = 3});
        const std::lock_guard lock(mutex);
        by_rank.push_back(std::move(mine));
    });
    ASSERT_EQ(by_rank.size(), 3U);
    const LinkTimes& first = by_rank.front();
    ASSERT_EQ(first.median.size(), 15U);
    for (size_t i = 0; i < first.median.size(); ++i) {
        EXPECT_GT(first.fastest[i].ns, 0) << to_string(first.median[i].what);
        EXPECT_LE(first.fastest[i].ns, first.median[i].ns);
        EXPECT_EQ(first.median[i].ranks, first.median[i].what == Do::send ? 2 : 3);
    }
    EXPECT_EQ(first.median[2].bytes, 70000);
    for (const LinkTimes& other : by_rank) {
        EXPECT_EQ(other.median, first.median);
        EXPECT_EQ(other.fastest, first.fastest);
    }
}

TEST(MeasureLinks, OfOneRankAreNone) {
    World::threads(1).run([](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        EXPECT_TRUE(measure_links(communicator, *device, communicator.transport(),
                                  {.bytes = {8}, .collectives = true})
                        .median.empty());
    });
}

TEST(FitLinks, MakesTheShortestMessageAndTheAskedOneComeOutRight) {
    const std::vector<LinkSample> samples{{.what = Do::send, .bytes = 100000, .ns = 50000},
                                          {.what = Do::send, .bytes = 8, .ns = 700},
                                          {.what = Do::send, .bytes = 4096, .ns = 2000},
                                          {.what = Do::gather, .bytes = 1, .ns = 1}};
    TableCosts costs;
    fit_links(samples, 100000, costs);
    const Group pair{{0, 1}, -1};
    EXPECT_EQ(costs.transfer_ns(Do::send, pair, 0), 700);
    EXPECT_EQ(costs.transfer_ns(Do::send, pair, 100000), 50000);
    fit_links(samples, 5000, costs);
    EXPECT_EQ(costs.transfer_ns(Do::send, pair, 4096), 2000);
}

TEST(FitLinks, WithoutMessagesLeavesTheCostsAsTheyAre) {
    TableCosts costs;
    costs.latency_ns = 5;
    fit_links({}, 100, costs);
    EXPECT_EQ(costs.latency_ns, 5);
}

}  // namespace
}  // namespace vocabpipe
