// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/make_transfer.hpp"

#include "src/schedule/ops.hpp"

#include <utility>

namespace vocabpipe {

Transfer TransferMaker::make(const Program& program, const Action& action) {
    const ActionTraits& row = traits(action.what);
    const Group& group = program.groups[action.group];
    const SentAndReceived buffers = moved(action.what, program.operands_of(action));
    Transfer transfer{.what = action.what,
                      .channel = channel_of(action.lane),
                      .ranks = group.ranks,
                      .root = group.root,
                      .type = program.reductions.empty()
                                  ? DType::fp32
                                  : program.reductions[action.reduction].partial,
                      .send = memory_.bytes(buffers.sent),
                      .receive = memory_.bytes(buffers.received),
                      .block_begin = {},
                      .block_end = {}};
    if (row.blocks == Blocks::none) return transfer;
    const Reduction& reduction = program.reductions[action.reduction];
    const bool of_sent = row.blocks == Blocks::of_sent;
    cut_blocks(group, reduction,
               reduction.cols * size_of(of_sent ? reduction.partial : reduction.result));
    transfer.block_begin = block_begin_;
    transfer.block_end = block_end_;
    if (action.what == Do::all_to_all) {
        const uint32_t whole = operands_of<Do::all_to_all>(program, action).whole;
        transfer.send =
            whole != kNoBuffer ? memory_.bytes(whole) : memory_.bytes_to_cut(buffers.sent);
        transfer.own_stays = memory_.sums_in_place(buffers.sent);
    }
    return transfer;
}

Transfer TransferMaker::make(const Program& program, const Action& action, RowRange rows) {
    Transfer transfer = make(program, action);
    const auto part = [&](auto all) {
        if (all.empty()) return all;
        const int64_t row_bytes = static_cast<int64_t>(all.size()) / program.tokens_of(action);
        return all.subspan(static_cast<size_t>(rows.first * row_bytes),
                           static_cast<size_t>(rows.size() * row_bytes));
    };
    transfer.send = part(transfer.send);
    transfer.receive = part(transfer.receive);
    return transfer;
}

/// Computes begin and end of each member's row block, in bytes. A root without rows has an empty
/// block.
void TransferMaker::cut_blocks(const Group& group, const Reduction& reduction, int64_t row_bytes) {
    const int owners =
        static_cast<int>(reduction.first_row.size()) - (reduction.last_row.empty() ? 1 : 0);
    block_begin_.clear();
    block_end_.clear();
    int owner = 0;
    for (const int rank : group.ranks) {
        const bool owns = std::cmp_equal(group.ranks.size(), owners) || rank != group.root;
        const bool has_block = owns && owner < owners;
        const int64_t end = owner == 0 && !has_block ? 0 : reduction.end(owner - !has_block);
        const int64_t begin = has_block ? reduction.first_row[static_cast<size_t>(owner)] : end;
        block_begin_.push_back(begin * row_bytes);
        block_end_.push_back(end * row_bytes);
        owner += has_block ? 1 : 0;
    }
}

}  // namespace vocabpipe
