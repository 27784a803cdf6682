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

/// Messages of one size to other ranks, sent in batches of bounded size.
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
    /// Whether the waiting messages should be sent.
    [[nodiscard]] bool full() const { return waiting_ >= most_; }

    /// Sends the waiting messages and calls `receive` with those for this rank (also its own), rank
    /// by rank. Collective.
    template <typename Receive>
    void flush(const Receive& receive) {
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
        // A vector's storage is aligned for any message.
        receive(std::span(reinterpret_cast<const Message*>(bytes.data()),
                          bytes.size() / sizeof(Message)));
    }

    SelectContext& context_;
    std::vector<std::vector<std::byte>> to_each_;
    size_t most_, waiting_ = 0;
};

/// Sends the messages that `produce` makes to the owners of samples, batch by batch.
/// `produce(outbox)` adds the messages of one sample and returns whether more follow. Collective.
template <typename Message, typename Produce, typename Receive>
void send_all(SelectContext& context, const Produce& produce, const Receive& receive) {
    Outbox<Message> outbox(context);
    for (bool more = true, anybody = true; anybody;) {
        while (more && !outbox.full()) more = produce(outbox);
        outbox.flush(receive);
        anybody = largest_over_ranks(context.world, more ? 1 : 0) > 0;
    }
}

/// Largest number of bytes that send_all() holds, if rows have at most `longest_row` messages.
template <typename Message>
[[nodiscard]] uint64_t outbox_bytes(int ranks, uint64_t batch_bytes, int64_t longest_row) {
    // A rank sends at most 1 / ranks of a batch plus the rest of a row, and may receive as much
    // from each other rank. Vectors may be twice as large as their contents.
    const auto row = static_cast<uint64_t>(longest_row) * sizeof(Message);
    const auto of_each = batch_bytes / static_cast<uint64_t>(ranks) + row;
    return 2 * of_each + (ranks > 1 ? of_each * static_cast<uint64_t>(ranks - 1) : 0);
}

}  // namespace vocabpipe
