// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/vocabulary_flow.hpp"

#include "src/schedule/lower/communication.hpp"

#include <vector>

namespace vocabpipe::lowering {

namespace {

/// The output layer of one microbatch on all its shards.
class OutputLayerFlow {
public:
    OutputLayerFlow(StepGraph& step, uint32_t microbatch)
        : step_(step),
          graph_(step.graph),
          j_(microbatch),
          one_barrier_(step.schedule.barriers == Barriers::one),
          of_length_(step.of(microbatch)),
          statistics_bytes_(of_length_.output_rows * step.sizes.statistics * 4),
          streamed_(step.sizes.predicted_tokens == 1),
          shards_(step.output_owners.size()) {}

    uint32_t build(uint32_t x) {
        score(x);
        gather_statistics();
        combine();
        if (!step_.backward) return kNoBuffer;
        return sum_input_gradients();
    }

private:
    struct Shard {
        int rank = 0;
        uint32_t x = kNoBuffer;
        uint32_t exp_logits = kNoBuffer;
        uint32_t statistics = kNoBuffer;
        uint32_t all_statistics = kNoBuffer;
        uint32_t input_gradient = kNoBuffer;
        uint32_t scored = kNoNode;    ///< node after which its statistics are complete
        uint32_t gathered = kNoNode;  ///< node after which those of all shards are complete
        uint32_t has_input_gradient = kNoNode;
    };

    uint32_t add_vocabulary(int rank, int64_t bytes) {
        return graph_.add_buffer(rank, bytes, Purpose::vocabulary);
    }

    /// C0 and S.
    void score(uint32_t x) {
        const int last_stage = step_.schedule.stages - 1;
        const uint32_t made = step_.passes.of_stage(Op::F, last_stage, j_);
        const Copies copies =
            add_broadcast(step_, {step_.last_rank, x, made}, step_.output_owners,
                          of_length_.output_bytes, j_, Purpose::vocabulary, streamed_);
        const int64_t gradient_bytes = of_length_.output_rows * step_.sizes.hidden * 4;
        for (size_t i = 0; i < shards_.size(); ++i) {
            Shard& shard = shards_[i];
            shard.rank = step_.output_owners[i];
            const ShardBytes& bytes = of_length_.shards[static_cast<size_t>(shard.rank)];
            const bool made_here = shard.rank == step_.last_rank;
            const Endpoint all = gather_rows(
                step_, {shard.rank, copies.buffers[i], made_here ? made : copies.arrived},
                of_length_.output_bytes, j_, Purpose::vocabulary);
            shard.x = all.buffer;
            shard.scored = step_.passes.of_rank(Op::S, shard.rank, j_);
            shard.exp_logits = add_vocabulary(shard.rank, bytes.exp_logits);
            shard.statistics = add_vocabulary(shard.rank, statistics_bytes_);
            if (step_.backward) shard.input_gradient = add_vocabulary(shard.rank, gradient_bytes);
            if (made_here || all.node != copies.arrived) {
                graph_.add_edge(all.node, shard.scored);
            } else {
                step_.add_stream(copies.arrived, shard.scored, streamed_);
            }
            graph_.set_operands<Op::S>(
                shard.scored,
                {.x = shard.x,
                 .exp_logits = shard.exp_logits,
                 .statistics = shard.statistics,
                 .input_gradient = one_barrier_ ? shard.input_gradient : kNoBuffer,
                 .workspace = step_.add_workspace(shard.rank, bytes.score_workspace)});
            shard.all_statistics = shard.statistics;
            shard.gathered = shard.scored;
        }
    }

    /// C1.
    void gather_statistics() {
        const size_t count = shards_.size() * static_cast<size_t>(step_.sizes.tensor);
        if (count == 1) return;
        const uint16_t members = graph_.group({step_.output_owners, -1, step_.shards});
        const uint32_t c1 = graph_.add_node(Do::all_gather);
        for (Shard& shard : shards_) {
            shard.all_statistics =
                add_vocabulary(shard.rank, statistics_bytes_ * static_cast<int64_t>(count));
            graph_
                .add_part<Do::all_gather>(c1, shard.rank, j_,
                                          {.mine = shard.statistics, .all = shard.all_statistics})
                .group = members;
            graph_.add_edge(shard.scored, c1);
            shard.gathered = c1;
        }
    }

    /// Softmax factors on every shard, and T.
    void combine() {
        const uint16_t members = graph_.group({step_.output_owners, -1, step_.shards});
        const int64_t factors_bytes = of_length_.output_rows * step_.sizes.factors * 4;
        for (Shard& shard : shards_) {
            const uint32_t factors =
                step_.backward ? add_vocabulary(shard.rank, factors_bytes) : kNoBuffer;
            const uint32_t combined = graph_.add_node(Do::combine_softmax);
            graph_
                .add_part<Do::combine_softmax>(
                    combined, shard.rank, j_,
                    {.statistics = shard.all_statistics,
                     .factors = factors,
                     .input_gradient = one_barrier_ ? shard.input_gradient : kNoBuffer,
                     .exp_logits = step_.sizes.keeps_logits ? shard.exp_logits : kNoBuffer})
                .group = members;
            graph_.add_edge(shard.gathered, combined);
            if (!step_.backward) continue;
            const uint32_t backward = step_.passes.of_rank(Op::T, shard.rank, j_);
            graph_.add_edge(combined, backward);
            const ShardBytes& bytes = of_length_.shards[static_cast<size_t>(shard.rank)];
            graph_.set_operands<Op::T>(
                backward,
                {.x = shard.x,
                 .exp_logits = shard.exp_logits,
                 .factors = factors,
                 .input_gradient = one_barrier_ ? kNoBuffer : shard.input_gradient,
                 .workspace = step_.add_workspace(shard.rank, bytes.weight_gradient_workspace)});
            shard.has_input_gradient = one_barrier_ ? combined : backward;
        }
    }

    /// C2.
    uint32_t sum_input_gradients() {
        const uint32_t dy = step_.add_output(step_.last_rank, j_, Purpose::boundary);
        Sum sum{.reduction = kOutputReduction,
                .owners = step_.output_owners,
                .streamed = !one_barrier_ && streamed_,
                .root = step_.last_rank,
                .into = dy,
                .microbatch = j_};
        for (const Shard& shard : shards_) {
            sum.partials.push_back(shard.input_gradient);
            sum.producers.push_back(shard.has_input_gradient);
        }
        const uint32_t done = add_sum(step_, sum);
        graph_.add_edge(done, step_.passes.backward(step_.schedule.stages - 1, j_));
        return dy;
    }

    StepGraph& step_;
    Graph& graph_;
    const uint32_t j_;
    const bool one_barrier_;
    const LengthGraph& of_length_;
    const int64_t statistics_bytes_;
    /// Pieces of a boundary are rows of tokens; rows of several predicted tokens travel whole.
    const bool streamed_;
    std::vector<Shard> shards_;  ///< [owner]
};

}  // namespace

Embedded add_embedding(StepGraph& step, uint32_t j) {
    const uint32_t x = step.add_boundary(step.first_rank, j);
    const bool direct = step.input_owners.size() == 1 &&
                        step.input_owners.front() == step.first_rank && step.sizes.tensor == 1;
    Sum sum{.reduction = kInputReduction,
            .owners = step.input_owners,
            .root = step.first_rank,
            .into = x,
            .microbatch = j};
    for (const int rank : step.input_owners) {
        const uint32_t partial = direct ? x : step.add_whole(rank, j, Purpose::partial_sums);
        const uint32_t pass = step.passes.of_rank(Op::E, rank, j);
        step.graph.set_operands<Op::E>(pass, {.embedded = partial});
        sum.partials.push_back(partial);
        sum.producers.push_back(pass);
    }
    const uint32_t embedded = direct ? sum.producers.front() : add_sum(step, sum);
    step.graph.add_edge(embedded, step.passes.of_stage(Op::F, 0, j));
    if (step.sizes.predicted_tokens == 1) return {.x = x};
    const Copies copies = add_broadcast(step, {step.first_rank, x, embedded}, {step.last_rank},
                                        step.of(j).boundary_bytes, j, Purpose::boundary);
    step.graph.add_edge(copies.arrived, step.passes.of_stage(Op::F, step.schedule.stages - 1, j));
    return {.x = x, .for_depths = copies.buffers.front()};
}

uint32_t add_output_layer(StepGraph& step, uint32_t j, uint32_t x) {
    return OutputLayerFlow(step, j).build(x);
}

void add_embedding_gradient(StepGraph& step, uint32_t j, uint32_t dx, uint32_t of_depths) {
    const int64_t bytes = step.of(j).boundary_bytes;
    const Endpoint of_stages{step.first_rank, dx, step.passes.backward(0, j)};
    const Endpoint of_last{step.last_rank, of_depths,
                           step.passes.backward(step.schedule.stages - 1, j)};
    const auto send = [&](const Endpoint& made) {
        return add_broadcast(step, made, step.input_owners, bytes, j, Purpose::boundary);
    };
    // The gradient of the depths is there first.
    const Copies depths = of_depths == kNoBuffer ? Copies() : send(of_last);
    const Copies stages = send(of_stages);
    for (size_t i = 0; i < step.input_owners.size(); ++i) {
        const int rank = step.input_owners[i];
        const uint32_t pass = step.passes.of_rank(Op::G, rank, j);
        const auto arrive = [&](const Endpoint& made, const Copies& copies) {
            const Endpoint all = gather_rows(
                step, {rank, copies.buffers[i], rank == made.rank ? made.node : copies.arrived},
                bytes, j, Purpose::boundary);
            step.graph.add_edge(all.node, pass);
            return all.buffer;
        };
        const uint32_t second = of_depths == kNoBuffer ? kNoBuffer : arrive(of_last, depths);
        step.graph.set_operands<Op::G>(
            pass, {.gradient = arrive(of_stages, stages), .of_depths = second});
    }
}

}  // namespace vocabpipe::lowering
