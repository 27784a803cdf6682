// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/symmetric/mail_peers.hpp"
#include "src/runtime/symmetric/meeting.hpp"
#include "src/runtime/symmetric/memory.hpp"
#include "src/runtime/symmetric/shared_peers.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/transport/shared_memory/mapping.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace vocabpipe {

namespace symmetric {

namespace {

using shared_memory::Mapping;

/// The least that any two members have in common. Throws UsageError, alike on all members, unless
/// they give the same sizes.
Nearness agreed(Meeting& meeting, Transport& transport, const SymmetricMemoryOptions& options) {
    Nearness nearness = Nearness::process;
    for (const int rank : options.ranks) {
        if (rank != transport.rank()) nearness = std::min(nearness, transport.nearness(rank));
    }
    const std::string sizes = std::to_string(options.bytes) + " bytes and " +
                              std::to_string(options.signals) + " signals";
    const std::vector<std::string> all =
        meeting.gather(std::to_string(static_cast<int>(nearness)) + sizes);
    for (size_t m = 0; m < all.size(); ++m) {
        const std::string theirs = all[m].substr(1);
        const std::string first = all[0].substr(1);
        if (theirs != first) {
            throw UsageError("symmetric memory: member " + std::to_string(m) + " (rank " +
                             std::to_string(options.ranks[m]) + ") gives " + theirs +
                             ", member 0 " + first + "; give the same on all");
        }
        nearness = std::min(nearness, static_cast<Nearness>(all[m][0] - '0'));
    }
    return nearness;
}

/// A file of /dev/shm that all members have mapped; null on all if one of them cannot.
std::shared_ptr<Mapping> map_on_all(Meeting& meeting, const Sizes& sizes, int self) {
    std::shared_ptr<Mapping> mapping;
    const auto failed = [&](auto&& work) {
        try {
            work();
        } catch (const CommunicationError&) {  // no room, or no /dev/shm: messages do
            mapping = nullptr;
        }
    };
    if (self == 0) failed([&] { mapping = Mapping::create(shared_bytes(sizes)); });
    const std::string name = meeting.gather(mapping ? mapping->name() : "")[0];
    if (self != 0 && !name.empty()) {
        failed([&] { mapping = Mapping::open(name, shared_bytes(sizes)); });
    }
    for (const std::string& mapped : meeting.gather(mapping ? "mapped" : "")) {
        if (mapped.empty()) return nullptr;
    }
    if (self == 0) mapping->remove();
    return mapping;
}

std::unique_ptr<Peers> make_peers(Communicator& world, const SymmetricMemoryOptions& options,
                                  int self) {
    const Sizes sizes{static_cast<int>(options.ranks.size()), options.bytes, all_signals(options)};
    Meeting meeting(world, options, self);
    Transport& transport = world.transport();
    const Nearness nearness = agreed(meeting, transport, options);
    if (nearness == Nearness::process) {
        auto memory =
            transport.share_in_process(meeting.number(), [&] { return make_shared_bytes(sizes); });
        (void)meeting.gather("");  // all have it before the first may give it back
        if (memory) {
            auto* const bytes = static_cast<std::byte*>(memory.get());
            return make_shared_peers(sizes, self, std::move(memory), bytes);
        }
    }
    if (nearness == Nearness::host) {
        if (std::shared_ptr<Mapping> mapping = map_on_all(meeting, sizes, self)) {
            std::byte* const bytes = mapping->data();
            return make_shared_peers(sizes, self, std::move(mapping), bytes);
        }
    }
    return make_mail_peers(sizes, self, options.ranks, world.tile_mail());
}

}  // namespace

}  // namespace symmetric

std::unique_ptr<SymmetricMemory> open_symmetric_memory(Communicator& world,
                                                       SymmetricMemoryOptions options) {
    if (options.ranks.empty()) options.ranks = tile_link::all_ranks(world.size());
    const int self = tile_link::own_member(options.ranks, world.rank(), world.size());
    if (options.bytes < 0 || options.signals < 0) {
        throw UsageError("symmetric memory: " + std::to_string(options.bytes) + " bytes and " +
                         std::to_string(options.signals) + " signals; both must be at least 0");
    }
    auto peers = symmetric::make_peers(world, options, self);
    return symmetric::make_memory(world, std::move(options), self, std::move(peers));
}

}  // namespace vocabpipe
