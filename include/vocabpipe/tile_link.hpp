// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace vocabpipe {

/// One rank's end of a team of ranks that compute together: inside a pass they exchange tensors by
/// pieces, which travel as soon as they are made and are used as soon as they are there (TileLink,
/// Zheng et al. 2025, arXiv 2503.20313; our form is a posted receive per piece, without signals).
///
/// On a device with streams all of this is enqueued: a wait holds up the stream of the pass, not
/// the host. There a member must have released what goes before a piece before it waits for that:
/// it releases in the order of to() and waits in that of from() (docs/overlap.md).
///
/// All members start the same operations in the same order, one at a time. Waits let the other
/// communication of the rank advance. Errors are CommunicationErrors that name operation, layer,
/// member and piece; after one the link is of no use.
class TileLink {
public:
    /// What a member gets, in pieces.
    struct Outgoing {
        std::span<const std::byte> bytes;  ///< of all pieces, one after the other
        std::span<const int64_t> ends;  ///< bytes where each piece ends; ascending, last: the size
    };
    /// What comes from a member, in pieces. The sender gives the same ends.
    struct Incoming {
        std::span<std::byte> bytes;     ///< of all pieces, one after the other
        std::span<const int64_t> ends;  ///< as of Outgoing
    };
    /// For messages.
    struct Name {
        std::string_view what;  ///< such as "all-gather of qkv"
        int layer = -1;         ///< -1: of none
    };

    /// What a device's link does for Operation; the members of Operation describe them.
    class Exchange {
    public:
        virtual ~Exchange() = default;
        /// Operation::release().
        virtual void release(int member, int pieces) = 0;
        /// Operation::wait().
        [[nodiscard]] virtual int wait(int member, int pieces) = 0;
        /// Operation::test().
        [[nodiscard]] virtual bool test(int member, int pieces) = 0;
        /// Operation::finish().
        virtual void finish() = 0;
    };

    /// An all-to-all under way. If it goes before finish() has returned, because of an error, all
    /// that the rank has open is cancelled, so that nobody writes into memory that goes as well.
    class Operation {
    public:
        /// For links; `exchange` cancels in its destructor.
        explicit Operation(std::unique_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

        /// The first `pieces` pieces for a member are made and may leave; those that have been
        /// released before stay so. Never blocks. Throws UsageError beyond the member's pieces, as
        /// wait() and test() do.
        void release(int member, int pieces) { exchange_->release(member, pieces); }
        /// Returns when the first `pieces` pieces of a member are there, and how many of its pieces
        /// may be used now: on hosts all that have arrived, so that one product takes them
        /// together; on devices with streams `pieces`, and of the own part what has been released.
        int wait(int member, int pieces) { return exchange_->wait(member, pieces); }
        /// Whether they are; advances the link.
        [[nodiscard]] bool test(int member, int pieces) { return exchange_->test(member, pieces); }
        /// Returns when everything has left and arrived: memory may be reused. Throws UsageError if
        /// a piece has not been released.
        void finish() { exchange_->finish(); }

    private:
        std::unique_ptr<Exchange> exchange_;
    };

    virtual ~TileLink() = default;
    /// This rank's number in the team.
    [[nodiscard]] virtual int rank() const = 0;
    /// Members of the team.
    [[nodiscard]] virtual int size() const = 0;
    /// Starts an operation: `send[m]` goes to member m by pieces as they are released, and
    /// `receive[m]` comes from it; parts may be empty, and a member's part for itself is copied
    /// where the two are not the same memory. Receives are posted here, so memory must be free now.
    /// An all-gather sends the same part to all; a reduce-scatter sends each member its rows, for
    /// the receiver to add up in the order of members. Throws UsageError for a wrong number of
    /// parts, ends that do not fit, or while the last operation has not finished.
    [[nodiscard]] virtual Operation all_to_all(std::span<const Outgoing> send,
                                               std::span<const Incoming> receive, Name name) = 0;
    /// Advances what is under way; never blocks. For Context's poll inside products.
    virtual void poll() = 0;

    /// The i-th member in ring order, i = 0 .. size - 1: from itself to rank - 1, rank - 2, ...:
    /// the order in which pieces of members arrive that release in the order of to().
    [[nodiscard]] int from(int i) const { return (rank() - i + size()) % size(); }
    /// From itself to rank + 1, rank + 2, ...: the order in which to release.
    [[nodiscard]] int to(int i) const { return (rank() + i) % size(); }
};

}  // namespace vocabpipe
