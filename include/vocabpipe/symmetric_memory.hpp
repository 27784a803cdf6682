// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

class Communicator;

/// Options of open_symmetric_memory(); all but `poll` are equal on all members.
struct SymmetricMemoryOptions {
    std::vector<int> ranks;  ///< members, in ranks of the world; empty: all of them
    int64_t bytes = 0;       ///< of each member's buffer
    int signals = 0;         ///< counters of each member; each takes a cache line
    /// Called while a wait finds nothing new, so that other work of the rank advances; may be
    /// empty.
    std::function<void()> poll;
};

/// Where a tile lies in a buffer: `rows` rows of `row_bytes`, their beginnings `stride` bytes
/// apart.
struct TilePlace {
    int64_t offset = 0;     ///< bytes, of the first row
    int64_t row_bytes = 0;  ///< bytes of a row
    int64_t rows = 1;       ///< number of rows
    int64_t stride = 0;     ///< bytes from row to row; not read where there is one row
};

/// What a wait is for, in its error.
struct Awaited {
    std::string_view operation = "symmetric memory";  ///< such as "ring all-gather of x"
    int64_t tile = -1;                                ///< -1: no tile
    int member = -1;                                  ///< who is to raise the signal; -1: not known
};

/// A buffer and counters, the signals, on every member of a team, into which the other members
/// write (push), from which they read (pull), and which they raise (notify): the data side of
/// TileLink's primitives (Zheng et al. 2025, arXiv 2503.20313, table 3), on hosts. Memory is plain
/// memory between threads of one process, /dev/shm between processes of one host that
/// communicate through it, and messages otherwise; what a program computes is the same.
///
/// What the raiser of a signal wrote before, into its own buffer and, with the same member, by
/// push, is there for the rank that has seen the signal (release and acquire). Who tells a third
/// rank calls quiet() first. By messages, a member takes pushes and answers pulls while it is in a
/// wait, a pull, test() or poll(), of this or another memory or link of open_tile_link().
///
/// Used by the rank's thread only. Waits end by the deadline of the world's WaitOptions, or when
/// interrupted, with a CommunicationError that names rank, operation, tile, signal and member;
/// afterwards the memory is unusable. Members, signals and places out of range are UsageErrors.
class SymmetricMemory {
public:
    static constexpr int kNoSignal = -1;  ///< a push that raises none

    virtual ~SymmetricMemory() = default;
    /// This rank's number in the team.
    [[nodiscard]] virtual int rank() const = 0;
    /// Members of the team.
    [[nodiscard]] virtual int size() const = 0;
    /// This member's buffer; zeros at first.
    [[nodiscard]] virtual std::span<std::byte> bytes() = 0;

    /// Writes to byte `offset` of a member's buffer, then raises its signal by one. `from` may be
    /// reused on return.
    virtual void push(int member, std::span<const std::byte> from, int64_t offset,
                      int signal = kNoSignal) = 0;
    /// The same for a tile of this member's buffer; places have as many bytes.
    virtual void push(int member, const TilePlace& mine, const TilePlace& theirs,
                      int signal = kNoSignal) = 0;
    /// Reads from byte `offset` of a member's buffer; complete on return.
    virtual void pull(int member, int64_t offset, std::span<std::byte> to) = 0;
    /// The same for a tile, into this member's buffer.
    virtual void pull(int member, const TilePlace& theirs, const TilePlace& mine) = 0;
    /// Returns when all that this rank has pushed is in the buffers of the members.
    virtual void quiet() = 0;

    /// Raises a signal of a member, which may be this one, by one.
    virtual void notify(int member, int signal) = 0;
    /// Raises a signal of every member.
    virtual void notify_all(int signal) = 0;
    /// How often a signal of this member has been raised since the memory was opened.
    [[nodiscard]] virtual uint64_t raised(int signal) = 0;
    /// Whether it has been raised `at_least` times; advances the team's messages.
    [[nodiscard]] virtual bool test(int signal, uint64_t at_least) = 0;
    /// Waits until it has.
    virtual void wait(int signal, uint64_t at_least, const Awaited& what = {}) = 0;

    /// Rank-level signals, apart from the others: raises the one that this rank has at a member.
    virtual void rank_notify(int member) = 0;
    /// Waits for one more rank_notify() of a member than at the last return.
    virtual void rank_wait(int member, const Awaited& what = {}) = 0;
    /// Waits until all members have called it, and all that they pushed before is in its place.
    virtual void barrier() = 0;

    /// Advances the team's messages; never blocks.
    virtual void poll() = 0;
    /// barrier(), after which nobody needs this rank any more; all members call it before they
    /// destroy the memory or leave the world, except on the way out with an error. Afterwards
    /// bytes() alone is of use.
    virtual void close() = 0;
};

/// Opens symmetric memory. Collective over the members, who open several memories and links of the
/// same ranks in the same order. `world` must outlive it and stay where it is. Throws UsageError
/// unless the ranks are distinct, exist and have this one among them, and all members give the same
/// sizes, which are not negative.
[[nodiscard]] std::unique_ptr<SymmetricMemory> open_symmetric_memory(
    Communicator& world, SymmetricMemoryOptions options);

}  // namespace vocabpipe
