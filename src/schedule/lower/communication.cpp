// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/communication.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::lowering {

namespace {

/// The buffer of an owner; kNoBuffer for other ranks.
uint32_t of_owner(const std::vector<int>& owners, const std::vector<uint32_t>& buffers, int rank) {
    const auto owner = std::find(owners.begin(), owners.end(), rank);
    if (owner == owners.end()) return kNoBuffer;
    return buffers[static_cast<size_t>(owner - owners.begin())];
}

uint32_t add_ordered_sum(Graph& graph, int rank, const OperandsOf<Do::ordered_sum>& operands,
                         uint16_t group, uint16_t reduction, uint32_t microbatch) {
    const uint32_t node = graph.add_node(Do::ordered_sum);
    Part& part = graph.add_part<Do::ordered_sum>(node, rank, microbatch, operands);
    part.group = group;
    part.reduction = reduction;
    return node;
}

uint32_t sum_natively(StepGraph& step, const Sum& sum) {
    Graph& graph = step.graph;
    const Reduction& reduction = graph.reduction(step.of(sum.microbatch).dealt[sum.reduction]);
    const bool converts = reduction.partial != reduction.result;
    const uint32_t total = converts ? graph.add_buffer(sum.root,
                                                       reduction.first_row.back() * reduction.cols *
                                                           size_of(reduction.partial),
                                                       Purpose::partial_sums)
                                    : sum.into;
    const uint16_t members = graph.group({sum.owners, sum.root});
    const uint32_t node = graph.add_node(Do::reduce);
    for (size_t i = 0; i < sum.owners.size(); ++i) {
        const int rank = sum.owners[i];
        Part& part = graph.add_part<Do::reduce>(
            node, rank, sum.microbatch,
            {.partial = sum.partials[i], .sum = rank == sum.root ? total : kNoBuffer});
        part.group = members;
        part.reduction = step.of(sum.microbatch).dealt[sum.reduction];
        graph.add_edge(sum.producers[i], node);
    }
    if (!converts) return node;
    const uint16_t alone = graph.group({{sum.root}, -1});
    const uint32_t conversion =
        add_ordered_sum(graph, sum.root, {.blocks = total, .sum = sum.into}, alone,
                        step.of(sum.microbatch).conversion, sum.microbatch);
    graph.add_edge(node, conversion);
    return conversion;
}

/// Every owner's block of a sum, and the node after which it is complete.
struct Blocks {
    std::vector<uint32_t> buffers;
    std::vector<uint32_t> ready;
};

/// Rows of an owner's block, equal on every slice.
int64_t rows_of_owner(const StepGraph& step, const Reduction& reduction, size_t owner) {
    return reduction.rows(static_cast<int>(owner) * step.sizes.tensor);
}

/// Sends every owner its row block of each partial.
Blocks deal_out(StepGraph& step, const Sum& sum, uint16_t members) {
    Graph& graph = step.graph;
    const Reduction& reduction = graph.reduction(step.of(sum.microbatch).dealt[sum.reduction]);
    const int64_t partials = static_cast<int64_t>(sum.owners.size()) * step.sizes.tensor;
    const uint32_t node = graph.add_node(Do::all_to_all);
    Blocks blocks;
    for (size_t i = 0; i < sum.owners.size(); ++i) {
        const int rank = sum.owners[i];
        const int64_t rows = rows_of_owner(step, reduction, i);
        blocks.buffers.push_back(
            graph.add_buffer(rank, partials * rows * reduction.cols * size_of(reduction.partial),
                             Purpose::partial_sums));
        Part& part = graph.add_part<Do::all_to_all>(
            node, rank, sum.microbatch,
            {.partial = sum.partials[i], .blocks = blocks.buffers.back()});
        part.group = members;
        part.reduction = step.of(sum.microbatch).dealt[sum.reduction];
        step.add_stream(sum.producers[i], node, sum.streamed);
    }
    blocks.ready.assign(sum.owners.size(), node);
    return blocks;
}

/// Sends the owners' blocks to the root.
uint32_t collect(StepGraph& step, const Sum& sum, const Blocks& blocks) {
    Graph& graph = step.graph;
    const Group all = with_root(sum.owners, sum.root);
    const uint16_t members = graph.group(all);
    const uint32_t node = graph.add_node(Do::gather);
    for (const int rank : all.ranks) {
        Part& part =
            graph.add_part<Do::gather>(node, rank, sum.microbatch,
                                       {.block = of_owner(sum.owners, blocks.buffers, rank),
                                        .whole = rank == sum.root ? sum.into : kNoBuffer});
        part.group = members;
        part.reduction = step.of(sum.microbatch).collected[sum.reduction];
    }
    for (const uint32_t before : blocks.ready) graph.add_edge(before, node);
    return node;
}

/// The sum as all-to-all, ordered sums and gather.
uint32_t sum_in_order(StepGraph& step, const Sum& sum) {
    Graph& graph = step.graph;
    const Reduction& reduction = graph.reduction(step.of(sum.microbatch).dealt[sum.reduction]);
    const uint16_t members = graph.group({sum.owners, -1, step.shards});
    const bool sharded = sum.owners.size() > 1 || step.sizes.tensor > 1;
    const bool at_root_only = sum.owners.size() == 1 && sum.owners.front() == sum.root;
    Blocks blocks = sharded ? deal_out(step, sum, members) : Blocks{sum.partials, sum.producers};
    // A single partial is not added, only converted to the result's type if necessary.
    if (sharded || reduction.partial != reduction.result || sum.reduction == kOutputReduction) {
        for (size_t i = 0; i < sum.owners.size(); ++i) {
            const int rank = sum.owners[i];
            const int64_t bytes =
                rows_of_owner(step, reduction, i) * reduction.cols * size_of(reduction.result);
            const uint32_t out =
                at_root_only ? sum.into : graph.add_buffer(rank, bytes, Purpose::partial_sums);
            const uint32_t node =
                add_ordered_sum(graph, rank, {.blocks = blocks.buffers[i], .sum = out}, members,
                                step.of(sum.microbatch).dealt[sum.reduction], sum.microbatch);
            graph.add_edge(blocks.ready[i], node);
            blocks.ready[i] = node;
            blocks.buffers[i] = out;
        }
    }
    return at_root_only ? blocks.ready.front() : collect(step, sum, blocks);
}

}  // namespace

Group with_root(std::vector<int> ranks, int root) {
    if (!std::binary_search(ranks.begin(), ranks.end(), root)) {
        ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), root), root);
    }
    return {std::move(ranks), root};
}

void add_message(StepGraph& step, const Endpoint& from, const Endpoint& to, Lane lane,
                 uint32_t microbatch) {
    Graph& graph = step.graph;
    const uint16_t pair = graph.pair(from.rank, to.rank);
    const uint32_t node = graph.add_node(lane);
    Part& send = graph.add_part<Do::send>(node, from.rank, microbatch, {.message = from.buffer});
    send.group = pair;
    send.pieces = step.of(microbatch).pieces;
    Part& receive = graph.add_part<Do::receive>(node, to.rank, microbatch, {.message = to.buffer});
    receive.group = pair;
    receive.pieces = step.of(microbatch).pieces;
    step.add_stream(from.node, node);
    step.add_stream(node, to.node);
    graph.post_ahead(node, to.node, step.options.receive_ahead);
}

Copies add_broadcast(StepGraph& step, const Endpoint& from, const std::vector<int>& owners,
                     int64_t bytes, uint32_t microbatch, Purpose purpose, bool streamed) {
    Graph& graph = step.graph;
    Copies copies{std::vector<uint32_t>(owners.size(), from.buffer), from.node};
    if (owners.size() == 1 && owners.front() == from.rank) return copies;
    const Group members = with_root(owners, from.rank);
    const uint16_t index = graph.group(members);
    copies.arrived = graph.add_node(Do::broadcast);
    for (const int rank : members.ranks) {
        const uint32_t copy =
            rank == from.rank ? from.buffer : graph.add_buffer(rank, bytes, purpose);
        Part& part =
            graph.add_part<Do::broadcast>(copies.arrived, rank, microbatch, {.message = copy});
        part.group = index;
        if (streamed) part.pieces = step.of(microbatch).pieces;
        const auto owner = std::find(owners.begin(), owners.end(), rank);
        if (owner != owners.end()) {
            copies.buffers[static_cast<size_t>(owner - owners.begin())] = copy;
        }
    }
    step.add_stream(from.node, copies.arrived, streamed);
    return copies;
}

Endpoint gather_rows(StepGraph& step, const Endpoint& own, int64_t bytes, uint32_t microbatch,
                     Purpose purpose) {
    if (step.sizes.tensor == 1) return own;
    Graph& graph = step.graph;
    const uint32_t all = graph.add_buffer(own.rank, bytes * step.sizes.tensor, purpose);
    const uint32_t node = graph.add_node(Do::all_gather);
    graph.add_part<Do::all_gather>(node, own.rank, microbatch, {.mine = own.buffer, .all = all})
        .group = graph.group({{own.rank}, -1, Axis::tensor});
    graph.add_edge(own.node, node);
    return {own.rank, all, node};
}

uint32_t add_sum(StepGraph& step, const Sum& sum) {
    const bool root_owns =
        std::find(sum.owners.begin(), sum.owners.end(), sum.root) != sum.owners.end();
    const bool natively = step.options.reductions == Reductions::native && sum.owners.size() > 1 &&
                          root_owns && step.sizes.tensor == 1;
    return natively ? sum_natively(step, sum) : sum_in_order(step, sum);
}

}  // namespace vocabpipe::lowering
