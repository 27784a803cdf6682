// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/message_runs.hpp"
#include "src/select/outbox.hpp"
#include "src/select/selection_state.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace vocabpipe {

/// send_all() of messages that change the state of their `node`. `receive` gets those to one
/// block of the state after the other, and `end_of_block(first, last)` is called after those to
/// [first, last). Where all of the state is in memory, that is one block, whose messages are
/// received while others are still produced: `produce` must not depend on what they change.
template <typename Message, typename Produce, typename Receive, typename End>
void deliver_all(SelectContext& context, const SelectionState& state, const Produce& produce,
                 const Receive& receive, const End& end_of_block) {
    const int64_t length = state.block_length();
    const int64_t blocks = context.blocks.count(state.size());
    if (blocks == 1) {
        send_all<Message>(context, produce, receive);
        end_of_block(state.first(), state.last());
        return;
    }
    MessageRuns runs(context.blocks, blocks);
    send_all<Message>(context, produce, [&](std::span<const Message> some) {
        for (const Message& one : some) {
            runs.add((one.node.value() - state.first()) / length, one);
        }
    });
    for (int64_t block = 0; block < blocks; ++block) {
        runs.read<Message>(block, receive);
        const int64_t first = state.first() + block * length;
        end_of_block(std::min(first, state.last()), std::min(first + length, state.last()));
    }
}

template <typename Message, typename Produce, typename Receive>
void deliver_all(SelectContext& context, const SelectionState& state, const Produce& produce,
                 const Receive& receive) {
    deliver_all<Message>(context, state, produce, receive, [](int64_t, int64_t) {});
}

}  // namespace vocabpipe
