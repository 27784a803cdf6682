// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/select_context.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Messages of one size on their way to ranks, in batches of bounded size.
template <typename Message>
class Outbox {
public:
    explicit Outbox(SelectContext& context)
        : context_(context),
          to_each_(static_cast<size_t>(context.world.size())),
          most_(std::max<size_t>(
              context.batch_bytes / sizeof(Message) / static_cast<size_t>(context.world.size()),
              1)) {}

    void add(int rank, const Message& message) {
        std::vector<std::byte>& to = to_each_[static_cast<size_t>(rank)];
        const auto* const bytes = reinterpret_cast<const std::byte*>(&message);
        to.insert(to.end(), bytes, bytes + sizeof message);
        ++waiting_;
    }
    /// Time to send what is waiting.
    [[nodiscard]] bool full() const { return waiting_ >= most_; }

    /// Hands `receive` what this rank was sent, its own messages among them, rank by rank.
    /// Collective.
    template <typename Receive>
    void exchange(const Receive& receive) {
        const auto self = static_cast<size_t>(context_.world.rank());
        context_.messages.messages += static_cast<int64_t>(waiting_);
        std::vector<std::byte> own = std::move(to_each_[self]);
        to_each_[self].clear();
        const size_t to_others = waiting_ - own.size() / sizeof(Message);
        context_.messages.sent += static_cast<int64_t>(to_others);
        context_.messages.bytes += static_cast<int64_t>(to_others * sizeof(Message));
        if (context_.world.size() > 1) {
            for (const auto& from : context_.world.all_to_all(to_each_)) read(from, receive);
        }
        read(own, receive);
        to_each_[self] = std::move(own);
        for (auto& to : to_each_) to.clear();
        waiting_ = 0;
    }

private:
    template <typename Receive>
    static void read(const std::vector<std::byte>& bytes, const Receive& receive) {
        if (bytes.empty()) return;
        // A vector's bytes are aligned for any message.
        receive(std::span(reinterpret_cast<const Message*>(bytes.data()),
                          bytes.size() / sizeof(Message)));
    }

    SelectContext& context_;
    std::vector<std::vector<std::byte>> to_each_;
    size_t most_, waiting_ = 0;
};

/// Sends what `produce` makes to the owners of samples, batch by batch. `produce(outbox)` adds the
/// messages of one sample and returns whether there are others. Collective.
template <typename Message, typename Produce, typename Receive>
void exchange_all(SelectContext& context, const Produce& produce, const Receive& receive) {
    Outbox<Message> outbox(context);
    for (bool more = true, anybody = true; anybody;) {
        while (more && !outbox.full()) more = produce(outbox);
        outbox.exchange(receive);
        anybody = largest_over_ranks(context.world, more ? 1 : 0) > 0;
    }
}

/// Most bytes that exchange_all() holds at once, with rows of at most this many messages.
template <typename Message>
[[nodiscard]] uint64_t exchange_bytes(int ranks, uint64_t batch_bytes, int64_t longest_row) {
    // What a rank sends is 1 / ranks of a batch and the rest of a row; from the others it may get
    // as much each. Vectors grow to twice what they hold.
    const auto row = static_cast<uint64_t>(longest_row) * sizeof(Message);
    const auto of_each = batch_bytes / static_cast<uint64_t>(ranks) + row;
    return 2 * of_each + (ranks > 1 ? of_each * static_cast<uint64_t>(ranks - 1) : 0);
}

}  // namespace vocabpipe
