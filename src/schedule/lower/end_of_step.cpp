// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/end_of_step.hpp"

#include "src/schedule/lower/communication.hpp"
#include "src/schedule/lower/replicas.hpp"
#include "vocabpipe/error.hpp"

#include <map>
#include <set>
#include <vector>

namespace vocabpipe::lowering {

namespace {

/// Sends a gradient to a rank that adds it to its own. `overwriter`: the sum that overwrites what
/// `from` sends.
void send_gradient(Graph& graph, const Endpoint& from, uint32_t overwriter, const Endpoint& to) {
    const uint16_t pair = graph.group({{from.rank, to.rank}, -1});
    const uint32_t node = graph.add_node(Do::send);
    graph.add_part<Do::send>(node, from.rank, 0, {.message = from.buffer}).group = pair;
    graph.add_part<Do::receive>(node, to.rank, 0, {.message = to.buffer}).group = pair;
    graph.add_edge(from.node, node);
    graph.add_edge(node, to.node);
    graph.add_edge(node, overwriter);
}

// --- tied weights --------------------------------------------------------------------------------

/// The largest part of rows that tensor ranks share as evenly as integers allow.
int64_t largest_part(int64_t rows, int64_t ranks) {
    return (rows + ranks - 1) / ranks;
}

/// A tied weight of whole layers on two ranks, which exchange their halves of the gradient.
class TiedPair {
public:
    TiedPair(StepGraph& step, int in, int out)
        : graph_(step.graph),
          in_(in),
          out_(out),
          bytes_(largest_part(step.schedule.input.vocab_size(), step.sizes.tensor) *
                 step.sizes.hidden * 4) {}

    void build(PassNodes& passes) {
        const uint32_t in_last = graph_.last_pass(in_);
        const uint32_t out_last = graph_.last_pass(out_);
        const uint32_t at_in = graph_.add_buffer(in_, bytes_, Purpose::tied);
        const uint32_t at_out = graph_.add_buffer(out_, bytes_, Purpose::tied);
        const uint32_t adds_in = graph_.append_pass(in_, {.op = Op::Reduce});
        const uint32_t adds_out = graph_.append_pass(out_, {.op = Op::Reduce});
        graph_.set_operands<Op::Reduce>(adds_in, {.received = at_in});
        graph_.set_operands<Op::Reduce>(adds_out, {.received = at_out});
        passes.completes_input(in_, adds_in);
        passes.completes_output(out_, adds_out);
        send_gradient(graph_, {in_, sent(in_, Buffer::Space::embedding_gradient), in_last}, adds_in,
                      {out_, at_out, adds_out});
        send_gradient(graph_, {out_, sent(out_, Buffer::Space::output_gradient), out_last},
                      adds_out, {in_, at_in, adds_in});
    }

private:
    [[nodiscard]] uint32_t sent(int rank, Buffer::Space gradient) {
        return graph_.add_buffer(rank, bytes_, Purpose::tied, gradient);
    }

    Graph& graph_;
    const int in_;
    const int out_;
    const int64_t bytes_;
};

/// A tied weight has a gradient from G and one from T, which are added once. If both layers have
/// the same shards, each rank adds its own.
void add_tied_gradients(StepGraph& step) {
    if (step.schedule.input == step.schedule.output) {
        for (const int rank : step.input_owners) {
            const uint32_t adds = step.graph.append_pass(rank, {.op = Op::Reduce});
            step.graph.set_operands<Op::Reduce>(adds, {.received = kNoBuffer});
            step.passes.completes_input(rank, adds);
        }
        return;
    }
    if (step.input_owners.size() != 1 || step.output_owners.size() != 1) {
        throw UsageError(
            "tied embeddings: the input and output layers have different shards; use equal shard "
            "maps, or put each layer on one rank");
    }
    TiedPair(step, step.input_owners.front(), step.output_owners.front()).build(step.passes);
}

// --- weights that layers share -------------------------------------------------------------------

/// Every rank that uses the weight gets the gradients of all uses and adds them up.
class SharedGradients {
public:
    /// `first_use`: of the weight, counted over all shared weights.
    SharedGradients(StepGraph& step, const SharedWeight& weight, size_t first_use)
        : step_(step), weight_(weight), first_use_(first_use) {
        for (const SharedWeight::Use& use : weight.uses) ranks_.insert(step.rank_of(use.stage));
    }

    /// `last`: [rank] the last pass that writes gradients.
    void build(const std::vector<uint32_t>& last) {
        std::map<int, uint32_t> adds;  // by rank
        for (const int rank : ranks_) {
            adds[rank] = step_.graph.append_pass(rank, {.op = Op::Reduce});
        }
        std::map<int, std::vector<uint32_t>> gradients;  // by rank: of every use
        for (size_t u = 0; u < weight_.uses.size(); ++u) {
            const int from = step_.rank_of(weight_.uses[u].stage);
            const uint32_t own = add_own(from, u);
            for (const int to : ranks_) {
                uint32_t there = own;
                if (to != from) {
                    there = step_.graph.add_buffer(to, weight_.bytes, Purpose::tied);
                    send_gradient(step_.graph, {from, own, last[static_cast<size_t>(from)]},
                                  adds[from], {to, there, adds[to]});
                }
                gradients[to].push_back(there);
            }
            step_.passes.completes_stage(weight_.uses[u].stage, adds[from]);
        }
        for (const int rank : ranks_) {
            step_.graph.set_operands<Op::Reduce>(adds[rank], {}, gradients[rank]);
        }
    }

private:
    uint32_t add_own(int rank, size_t use) {
        const uint32_t own = step_.graph.add_buffer(rank, weight_.bytes, Purpose::tied,
                                                    Buffer::Space::shared_gradient);
        step_.graph.buffer(own).bucket = static_cast<uint16_t>(first_use_ + use);
        return own;
    }

    StepGraph& step_;
    const SharedWeight& weight_;
    const size_t first_use_;
    std::set<int> ranks_;
};

void add_shared_gradients(StepGraph& step) {
    std::vector<uint32_t> last;
    for (int rank = 0; rank < step.schedule.ranks; ++rank) {
        last.push_back(step.graph.last_pass(rank));
    }
    size_t use = 0;
    for (const SharedWeight& weight : step.sizes.shared_weights) {
        SharedGradients(step, weight, use).build(last);
        use += weight.uses.size();
    }
}

// --- reports and updates -------------------------------------------------------------------------

/// The reports on every rank.
struct Reports {
    std::vector<uint32_t> buffers;  ///< [rank]
    std::vector<uint32_t> made_by;  ///< [rank] the node after which the reports are complete
};

/// `sharded`: [rank] sums of gradients that ranks share.
Reports add_reports(StepGraph& step, const std::vector<std::vector<uint32_t>>& sharded) {
    Reports reports;
    for (int rank = 0; rank < step.schedule.ranks; ++rank) {
        const uint32_t report =
            step.graph.add_buffer(rank, step.sizes.report_bytes, Purpose::report);
        const std::vector<uint32_t> sums = add_sums_over_replicas(step, rank);
        const uint32_t pass = step.graph.append_pass(rank, {.op = Op::Report});
        step.graph.set_operands<Op::Report>(pass, {.report = report});
        for (const uint32_t sum : sums) step.graph.add_edge(sum, pass);
        for (const uint32_t sum : sharded[static_cast<size_t>(rank)]) {
            step.graph.add_edge(sum, pass);
        }
        reports.buffers.push_back(report);
        reports.made_by.push_back(pass);
    }
    return reports;
}

/// Gathers the reports of all ranks on every rank of the world.
Reports gather_reports(StepGraph& step, const Reports& own, uint16_t world) {
    Reports all;
    const int ranks = step.schedule.ranks;
    const int world_size = step.sizes.mesh(ranks).size();
    const uint32_t node = step.graph.add_node(Do::all_gather);
    for (int rank = 0; rank < ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        all.buffers.push_back(
            step.graph.add_buffer(rank, step.sizes.report_bytes * world_size, Purpose::report));
        step.graph
            .add_part<Do::all_gather>(node, rank, 0,
                                      {.mine = own.buffers[r], .all = all.buffers[r]})
            .group = world;
        step.graph.add_edge(own.made_by[r], node);
    }
    all.made_by.assign(static_cast<size_t>(ranks), node);
    return all;
}

}  // namespace

void add_end_of_step(StepGraph& step, const std::vector<std::vector<uint32_t>>& sharded_sums) {
    if (step.sizes.tied) add_tied_gradients(step);
    add_shared_gradients(step);
    if (step.sizes.report_bytes == 0) return;
    const bool copied = step.sizes.mesh(step.schedule.ranks).slices() > 1;
    const bool alone = step.schedule.ranks == 1 && !copied;
    std::vector<int> everyone;
    for (int rank = 0; rank < step.schedule.ranks; ++rank) everyone.push_back(rank);
    const uint16_t world = step.graph.group({everyone, -1, copied ? Axis::world : Axis::pipeline});
    const Reports own = add_reports(step, sharded_sums);
    const Reports all = alone ? own : gather_reports(step, own, world);
    for (const int rank : everyone) {
        const auto r = static_cast<size_t>(rank);
        const uint32_t update = step.graph.append_pass(rank, {.op = Op::Update});
        step.graph.set_operands<Op::Update>(update, {.reports = all.buffers[r]});
        if (!alone) step.graph.add_edge(all.made_by[r], update);
        gather_weights(step, rank, update);
    }
}

}  // namespace vocabpipe::lowering
