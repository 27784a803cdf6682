// SPDX-License-Identifier: Apache-2.0
// What only shared memory has: segments, hosts of a world, ranks that are killed.
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/transport/shared_memory/transport.hpp"
#include "src/runtime/wait.hpp"
#include "tests/support/test_world.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

namespace vocabpipe::shared_memory {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TestWorld;

Bytes numbered(uint32_t id, size_t size) {
    std::minstd_rand random(id + 1);
    Bytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
    return bytes;
}

/// Names in /dev/shm that this process has made.
std::vector<std::string> names_of(pid_t pid) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        const std::string name = entry.path().filename();
        if (name.starts_with("vocabpipe-" + std::to_string(pid) + "-")) found.push_back(name);
    }
    return found;
}

std::vector<int> all_here(int ranks) {
    std::vector<int> place(static_cast<size_t>(ranks));
    std::iota(place.begin(), place.end(), 0);
    return place;
}

// --- segments ------------------------------------------------------------------------------------

TEST(Segment, IsTheSameMemoryForAllWhoOpenItAndOutlivesItsName) {
    const SegmentLayout layout(3, 4096);
    const auto made = Segment::create(layout);
    const auto opened = Segment::open(made->name(), layout);
    EXPECT_THROW((void)Segment::open(made->name(), SegmentLayout(4, 4096)), CommunicationError);
    made->remove();
    EXPECT_THAT(names_of(::getpid()), IsEmpty());
    EXPECT_THROW((void)Segment::open(made->name(), layout), CommunicationError);
    made->ring(2, 0, Channel::tensor)[17] = std::byte{42};
    EXPECT_EQ(opened->ring(2, 0, Channel::tensor)[17], std::byte{42});
    EXPECT_NO_THROW(opened->throw_if_aborted());
    made->abort("the reason");
    opened->abort("a later reason");
    try {
        opened->throw_if_aborted();
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_STREQ(error.what(), "the reason");
    }
}

// 1024 bytes have room for a reason and its end.
TEST(Segment, CutsAReasonThatIsTooLong) {
    const auto made = Segment::create(SegmentLayout(2, 4096));
    made->abort(std::string(5000, 'r'));
    try {
        made->throw_if_aborted();
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_EQ(error.what(), std::string(1023, 'r'));
    }
    made->remove();
}

TEST(Segment, LeavesNoNameIfItGoesBeforeTheOthersHaveOpenedIt) {
    {
        const auto made = Segment::create(SegmentLayout(2, 4096));
        EXPECT_EQ(names_of(::getpid()).size(), 1u);
    }
    EXPECT_THAT(names_of(::getpid()), IsEmpty());
}

/// While it lives, no file of this process may be longer: posix_fallocate fails as on a full disk.
class FileLimit {
public:
    explicit FileLimit(rlim_t bytes) {
        ::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::signal(SIGXFSZ, SIG_DFL);
    }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;

private:
    rlimit before_{};
};

TEST(Segment, SaysHowManyBytesThereWasNoRoomForAndLeavesNothing) {
    const FileLimit limit(64 << 10);
    try {
        (void)Segment::create(SegmentLayout(2));
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), HasSubstr("/dev/shm has no room for " +
                                            std::to_string(SegmentLayout(2).bytes()) + " bytes: "));
    }
    EXPECT_THAT(names_of(::getpid()), IsEmpty());
}

// --- transport -----------------------------------------------------------------------------------

/// One end of a message of this rank; tests do not care for more.
struct End {
    std::array<int, 2> pair;
    Bytes bytes;
    Transfer transfer;

    End(Do what, int from, int to, Channel channel, Bytes content)
        : pair{from, to}, bytes(std::move(content)) {
        transfer = {.what = what, .channel = channel, .ranks = pair};
        if (what == Do::send) transfer.send = bytes;
        if (what == Do::receive) transfer.receive = bytes;
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;
};

TEST(SharedMemoryTransport, KeepsBytesAndOrderWithRandomDelaysOnAllChannels) {
    for (unsigned seed = 0; seed < 6; ++seed) {
        TestWorld(3).run([&](Communicator& c) {
            Transport& t = c.transport();
            std::mt19937 random(seed * 10 + static_cast<unsigned>(c.rank()));
            const auto size_of = [&](uint32_t id) {
                return std::minstd_rand(id + seed)() % (id % 5 == 0 ? 60'000 : 900);
            };
            constexpr uint32_t kMessages = 12;
            std::deque<End> ends;
            std::deque<std::pair<Ticket, End*>> open;
            std::vector<std::pair<End*, uint32_t>> expected;
            const auto look = [&] {
                std::erase_if(
                    open, [&](const auto& one) { return random() % 3 != 0 && t.test(one.first); });
                if (random() % 4 == 0) {
                    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                }
            };
            for (uint32_t m = 0; m < kMessages; ++m) {
                for (int channel = 1; channel < kChannels; ++channel) {
                    for (int peer = 0; peer < 3; ++peer) {
                        if (peer == c.rank()) continue;
                        const auto on = static_cast<Channel>(channel);
                        const auto id = [&](int from, int to) {
                            return ((m * 10 + static_cast<uint32_t>(channel)) * 10 +
                                    static_cast<uint32_t>(from)) *
                                       10 +
                                   static_cast<uint32_t>(to);
                        };
                        const uint32_t mine = id(c.rank(), peer);
                        const uint32_t theirs = id(peer, c.rank());
                        End& out = ends.emplace_back(Do::send, c.rank(), peer, on,
                                                     numbered(mine, size_of(mine)));
                        open.emplace_back(t.start(out.transfer), &out);
                        End& in = ends.emplace_back(Do::receive, peer, c.rank(), on,
                                                    Bytes(size_of(theirs)));
                        expected.emplace_back(&in, theirs);
                        open.emplace_back(t.start(in.transfer), &in);
                        look();
                    }
                }
            }
            const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
            while (!open.empty()) {
                look();
                if (std::chrono::steady_clock::now() > deadline) {
                    t.cancel();
                    throw std::runtime_error("transfers did not end");
                }
            }
            for (const auto& [end, id] : expected) {
                ASSERT_EQ(end->bytes, numbered(id, size_of(id))) << "seed " << seed << " id " << id;
            }
        });
    }
}

TEST(SharedMemoryTransport, NamesRankChannelAndSizesWhereTheyDifferAndOtherChannelsGoOn) {
    for (const size_t sent : {size_t{10}, size_t{9000}}) {
        TestWorld(2).run([&](Communicator& c) {
            Transport& t = c.transport();
            const Do what = c.rank() == 0 ? Do::send : Do::receive;
            End wrong(what, 0, 1, Channel::backward, Bytes(c.rank() == 0 ? sent : 20));
            End right(what, 0, 1, Channel::forward, numbered(1, 5000));
            const Ticket first = t.start(wrong.transfer);
            const Ticket second = t.start(right.transfer);
            EXPECT_EQ(poll_until(c.wait_options(), [&] { return t.test(second); }),
                      IdleWait::Verdict::go_on);
            if (c.rank() == 1) {
                try {
                    (void)poll_until(c.wait_options(), [&] { return t.test(first); });
                    ADD_FAILURE() << "no exception";
                } catch (const CommunicationError& error) {
                    EXPECT_EQ(error.what(),
                              "rank 1: channel backward from rank 0: received a message of " +
                                  std::to_string(sent) + " bytes, expected 20");
                }
            }
            t.cancel();
        });
    }
}

TEST(SharedMemoryTransport, CancelledTransfersTouchNoMemoryAndWaitForNobody) {
    TestWorld(2).run([](Communicator& c) {
        Transport& t = c.transport();
        const bool sends = c.rank() == 0;
        auto end = std::make_unique<End>(sends ? Do::send : Do::receive, 0, 1, Channel::forward,
                                         sends ? numbered(1, 100'000) : Bytes(100'000));
        (void)t.start(end->transfer);
        t.cancel();   // in the middle: the ring has 4 KiB
        end.reset();  // AddressSanitizer would see who comes late
        for (int i = 0; i < 100; ++i) {
            // Another channel still moves, and drives all there is.
            End other(sends ? Do::send : Do::receive, 0, 1, Channel::backward, Bytes(3000));
            const Ticket ticket = t.start(other.transfer);
            EXPECT_EQ(poll_until(c.wait_options(), [&] { return t.test(ticket); }),
                      IdleWait::Verdict::go_on);
        }
    });
}

TEST(SharedMemoryTransport, AbortWakesTheOthersWithItsReason) {
    std::atomic<int> woken{0};
    TestWorld(4).run([&](Communicator& c) {
        if (c.rank() == 2) {
            std::this_thread::sleep_for(milliseconds(20));
            c.transport().abort("the reason");
            return;
        }
        End in(Do::receive, 2, c.rank(), Channel::collective, Bytes(8));
        const Ticket ticket = c.transport().start(in.transfer);
        try {
            (void)poll_until(c.wait_options(), [&] { return c.transport().test(ticket); });
        } catch (const CommunicationError& error) {
            EXPECT_STREQ(error.what(), "the reason");
            EXPECT_THROW(c.transport().check_health(), CommunicationError);
            ++woken;
        }
        c.transport().cancel();
    });
    EXPECT_EQ(woken.load(), 3);
}

TEST(SharedMemoryTransport, DeadlineAndInterruptionEndAWait) {
    const auto error_of = [](WaitOptions wait) -> std::string {
        try {
            TestWorld(2, std::move(wait)).run([](Communicator& c) {
                if (c.rank() == 0) c.barrier();
            });
        } catch (const CommunicationError& error) {
            return error.what();
        }
        return "none";
    };
    EXPECT_THAT(error_of({.timeout_seconds = 0.2}),
                HasSubstr("rank 0: the other ranks did not answer"));
    EXPECT_THAT(error_of({.timeout_seconds = 60, .interrupted = [] { return true; }}),
                HasSubstr("rank 0: told to end"));
}

// --- hosts ---------------------------------------------------------------------------------------

/// Counts the messages that go through it.
class CountingTransport final : public Transport {
public:
    CountingTransport(Transport& inner, std::atomic<int>& messages)
        : inner_(inner), messages_(messages) {}
    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        ++messages_;
        return inner_.start(transfer);
    }
    [[nodiscard]] bool test(Ticket ticket) override { return inner_.test(ticket); }
    void cancel() noexcept override { inner_.cancel(); }
    void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

private:
    Transport& inner_;
    std::atomic<int>& messages_;
};

/// Connects `ranks` threads as if rank i were on host i % hosts, and lets each send one message to
/// every other. Returns how many of these went by the transport between hosts.
int far_messages(int ranks, int hosts, std::vector<std::string>& notes) {
    std::mutex mutex;
    std::atomic<int> messages{0};
    World::threads(ranks, {.timeout_seconds = 30}).run([&](Communicator& plain) {
        const auto counting = [&] {
            return std::make_unique<CountingTransport>(plain.transport(), messages);
        };
        const auto note = [&](const std::string& line) {
            const std::lock_guard lock(mutex);
            notes.push_back(line);
        };
        Communicator c =
            connect_hosts(Communicator(counting(), plain.wait_options()),
                          {.host = "host-" + std::to_string(plain.rank() % hosts), .note = note});
        EXPECT_EQ(c.rank(), plain.rank());
        EXPECT_EQ(c.size(), ranks);
        plain.barrier();
        if (c.rank() == 0) messages = 0;
        plain.barrier();
        std::deque<End> ends;
        std::vector<Ticket> open;
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer == c.rank()) continue;
            const auto id = static_cast<uint32_t>(peer * ranks + c.rank());
            open.push_back(c.transport().start(
                ends.emplace_back(Do::receive, peer, c.rank(), Channel::expert, Bytes(20'000 + id))
                    .transfer));
        }
        const size_t receives = ends.size();
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer == c.rank()) continue;
            const auto id = static_cast<uint32_t>(c.rank() * ranks + peer);
            open.push_back(
                c.transport().start(ends.emplace_back(Do::send, c.rank(), peer, Channel::expert,
                                                      numbered(id, 20'000 + id))
                                        .transfer));
        }
        for (const Ticket ticket : open) {  // one after the other: each drives the others
            EXPECT_EQ(poll_until(c.wait_options(), [&] { return c.transport().test(ticket); }),
                      IdleWait::Verdict::go_on);
        }
        for (size_t i = 0; i < receives; ++i) {
            const auto id = static_cast<uint32_t>(ends[i].pair[0] * ranks + c.rank());
            EXPECT_EQ(ends[i].bytes, numbered(id, 20'000 + id));
        }
        plain.barrier();
    });
    EXPECT_THAT(names_of(::getpid()), IsEmpty());
    return messages.load() / 2;
}

TEST(SharedMemoryHosts, RanksOfOneHostUseMemoryAndAllOthersTheTransportBetweenHosts) {
    std::vector<std::string> notes;
    EXPECT_EQ(far_messages(4, 1, notes), 0);
    EXPECT_EQ(far_messages(4, 2, notes), 8);
    EXPECT_EQ(far_messages(5, 2, notes), 12) << "hosts of 3 and 2 ranks";
    EXPECT_EQ(far_messages(3, 3, notes), 6) << "a rank each: no memory to share";
    EXPECT_EQ(far_messages(1, 1, notes), 0);
    EXPECT_THAT(notes, IsEmpty());
}

TEST(SharedMemoryHosts, WithoutRoomAllGoOnBetweenHostsAndOneRankSaysWhy) {
    const FileLimit limit(64 << 10);
    std::vector<std::string> notes;
    EXPECT_EQ(far_messages(4, 2, notes), 12);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_THAT(notes.front(),
                AllOf(HasSubstr("no shared memory between the ranks of host-0: /dev/shm has no "
                                "room for "),
                      HasSubstr("; they use MPI; "), HasSubstr("--transport-on-host mpi")));
    EXPECT_THAT(notes.front(), ::testing::Not(HasSubstr("\n")));
}

// --- killed ranks --------------------------------------------------------------------------------

/// What a rank says before it ends with the exit code of its error.
[[noreturn]] void run_rank(const std::shared_ptr<Segment>& segment, int rank, int ranks, int pipe) {
    const WaitOptions wait{.timeout_seconds = 1};
    Communicator c(make_transport(segment, {.rank = rank, .place = all_here(ranks)}), wait);
    std::vector<int> team = all_here(ranks);
    const auto link = make_host_tile_link(c.transport(), wait, {.ranks = std::move(team)});
    const std::vector<int64_t> ends{20'000, 40'000, 60'000};
    const Bytes out(60'000);
    std::vector<Bytes> in(static_cast<size_t>(ranks), Bytes(60'000));
    const std::vector<TileLink::Outgoing> send(static_cast<size_t>(ranks), {out, ends});
    std::vector<TileLink::Incoming> receive;
    for (Bytes& part : in) receive.push_back({part, ends});
    try {
        for (int layer = 0;; ++layer) {
            TileLink::Operation op = link->all_to_all(send, receive, {"all-gather of x", layer});
            for (int piece = 1; piece <= 3; ++piece) {
                // The last rank dies with piece 1 of layer 5 on its way: the ring has 4 KiB.
                if (rank == ranks - 1 && layer == 5 && piece == 3) ::raise(SIGKILL);
                for (int m = 0; m < ranks; ++m) op.release(m, piece);
            }
            op.finish();
        }
    } catch (const Error& error) {
        const std::string text = error.what();
        if (::write(pipe, text.data(), text.size()) < 0) ::_exit(99);
        ::_exit(static_cast<int>(error.exit_code()));
    }
}

TEST(SharedMemoryEnds, SurvivorsOfAKilledRankEndInTimeWithExitCode5AndNameWhatTheyWaitedFor) {
    constexpr int kRanks = 3;
    const auto segment = Segment::create(SegmentLayout(kRanks, 4096));
    segment->remove();
    std::array<pid_t, kRanks> pids{};
    std::array<std::array<int, 2>, kRanks> pipes{};
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < kRanks; ++rank) {
        const auto at = static_cast<size_t>(rank);
        ASSERT_EQ(::pipe(pipes[at].data()), 0);
        pids[at] = ::fork();
        ASSERT_GE(pids[at], 0);
        if (pids[at] == 0) run_rank(segment, rank, kRanks, pipes[at][1]);
        ::close(pipes[at][1]);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
        const auto at = static_cast<size_t>(rank);
        int status = 0;
        ASSERT_EQ(::waitpid(pids[at], &status, 0), pids[at]);
        std::array<char, 1000> text{};
        (void)!::read(pipes[at][0], text.data(), text.size() - 1);
        ::close(pipes[at][0]);
        if (rank == kRanks - 1) {
            EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            continue;
        }
        EXPECT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), 5);
        EXPECT_THAT(text.data(), AllOf(HasSubstr("rank " + std::to_string(rank) +
                                                 ": all-gather of x, layer 5: "),
                                       HasSubstr("of member 2 (rank 2)"), HasSubstr(" piece ")));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_THAT(names_of(::getpid()), IsEmpty());
}

}  // namespace
}  // namespace vocabpipe::shared_memory
