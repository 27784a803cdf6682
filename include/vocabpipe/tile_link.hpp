// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace vocabpipe {

class Communicator;

/// Whom a tile link joins.
struct TileLinkOptions {
    std::vector<int> ranks;  ///< members, in ranks of the world; all members give the same order
    /// Called while a wait finds nothing new, so that other work of the rank advances; may be
    /// empty. On a device with streams only while the host waits for another host.
    std::function<void()> poll;
    // For the two lanes on which an executor runs the passes of a pair. Only links of a Device of
    // hosts read them.
    /// Called before `poll`: runs the other pass of the pair until that one waits or ends. Returns
    /// whether it has computed; then the time of the wait until its deadline begins anew. `begins`:
    /// the wait calls it for the first time. Empty: no other lane.
    std::function<bool(bool begins)> other_lane = {};
    /// 1: for the second passes of pairs; its messages do not meet those of lane 0.
    int lane = 0;
};

/// One rank's end of a team of ranks that compute together: inside a pass they exchange tensors in
/// pieces, which travel as soon as they are made and are used as soon as they arrive (TileLink,
/// Zheng et al. 2025, arXiv 2503.20313; here each piece is a posted receive, without signals).
///
/// On a device with streams all of this is enqueued: a wait blocks the stream of the pass, not the
/// host. There, before a member waits for a piece, it must have released its own pieces of this
/// step and of all earlier ones: it releases in the order of to() and waits in the order of from()
/// (docs/overlap.md), or piece by piece with Order::by_piece.
///
/// All members start the same operations in the same order. Links of open_tile_link() have several
/// under way at once, those of a Device one at a time. Waits let the other communication of the
/// rank advance. Errors are CommunicationErrors naming operation, layer, member and piece; after an
/// error the link is unusable.
class TileLink {
public:
    /// Data for one member, in pieces.
    struct Outgoing {
        std::span<const std::byte> bytes;  ///< of all pieces
        std::span<const int64_t> ends;  ///< bytes where each piece ends; ascending, last: the size
        /// Bytes where each piece begins; then pieces may lie anywhere in `bytes`. Empty: each
        /// begins where the one before ends.
        std::span<const int64_t> begins = {};
    };
    /// Data from one member, in pieces. The sender gives pieces of the same sizes.
    struct Incoming {
        std::span<std::byte> bytes;            ///< of all pieces
        std::span<const int64_t> ends;         ///< as in Outgoing
        std::span<const int64_t> begins = {};  ///< as in Outgoing
    };
    /// The order in which pieces travel on a device with streams; on hosts they travel as they are
    /// released.
    enum class Order : uint8_t {
        by_member,  ///< all pieces to the next member, then all to the one after it
        by_piece,   ///< the first piece to every member, then the second
    };
    /// For messages.
    struct Name {
        std::string_view what;  ///< such as "all-gather of qkv"
        int layer = -1;         ///< -1: no layer
    };

    /// A device's implementation of Operation; see the functions there.
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

    /// An all-to-all in progress. If it is destroyed before finish() has returned, because of an
    /// error, all open transfers of the rank are cancelled, so that nothing is written into memory
    /// that is freed.
    class Operation {
    public:
        /// For links; `exchange` cancels in its destructor.
        explicit Operation(std::unique_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

        /// Releases the first `pieces` pieces for a member: they are made and may be sent. Never
        /// blocks. Throws UsageError beyond the member's pieces, as wait() and test() do.
        void release(int member, int pieces) { exchange_->release(member, pieces); }
        /// Waits for the first `pieces` pieces of a member and returns how many of its pieces may
        /// be used now: on hosts all that have arrived, so that one product can take them together;
        /// on devices with streams `pieces`, or for the own part all released ones.
        int wait(int member, int pieces) { return exchange_->wait(member, pieces); }
        /// Whether the first `pieces` pieces of a member have arrived; advances the link.
        [[nodiscard]] bool test(int member, int pieces) { return exchange_->test(member, pieces); }
        /// Waits until everything is sent and received: memory may be reused. Throws UsageError if
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
    /// Starts an operation: `send[m]` goes to member m in pieces as they are released, and
    /// `receive[m]` comes from it; parts may be empty, and a member's part for itself is copied
    /// where the two are not the same memory. Receives are posted here, so memory must be free now.
    /// An all-gather sends the same part to all; a reduce-scatter sends each member its rows, for
    /// the receiver to add up in the order of members. Throws UsageError for a wrong number of
    /// parts, for ends that do not fit, or if the last operation has not finished on a link that
    /// runs one at a time.
    [[nodiscard]] virtual Operation all_to_all(std::span<const Outgoing> send,
                                               std::span<const Incoming> receive, Name name,
                                               Order order = Order::by_member) = 0;
    /// Advances what is in progress; never blocks. For Context::poll() inside products.
    virtual void poll() = 0;

    /// The i-th member to wait for, i = 0 .. size - 1: this rank, rank - 1, rank - 2, ... Pieces
    /// arrive in this order if all members release in the order of to().
    [[nodiscard]] int from(int i) const { return (rank() - i + size()) % size(); }
    /// The i-th member to release for: this rank, rank + 1, rank + 2, ...
    [[nodiscard]] int to(int i) const { return (rank() + i) % size(); }
};

/// A link between memory of hosts over any group of ranks of the world, for programs that bring
/// their own passes; without ranks in `options`, over all. Its messages meet neither the library's
/// nor those of other links. Operations of several links, and several of one link, may be under way
/// at once and finish in any order; what arrives for an operation that this rank has not started is
/// kept meanwhile. Members that open several links of the same ranks do so in the same order;
/// nobody waits here. `world` must outlive the link and stay where it is. Throws UsageError unless
/// the ranks are distinct, exist, and have this rank among them. (TileLink, arXiv 2503.20313;
/// docs/tiles.md)
[[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Communicator& world,
                                                       TileLinkOptions options);
/// The same for this rank's group along an axis of a mesh that has the size of the world, otherwise
/// UsageError.
[[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Communicator& world, const Mesh& mesh,
                                                       Axis axis, std::function<void()> poll = {});

}  // namespace vocabpipe
