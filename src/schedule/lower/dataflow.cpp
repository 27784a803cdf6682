// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/dataflow.hpp"

#include "src/schedule/action_costs.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

namespace vocabpipe::lowering {

namespace {

constexpr uint32_t kNoNode = UINT32_MAX;

class Builder {
public:
    Builder(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
            const LowerOptions& options)
        : schedule_(schedule),
          sizes_(sizes),
          costs_(costs),
          options_(options),
          microbatches_(static_cast<uint32_t>(schedule.microbatches)),
          backward_(!schedule.forward_only()),
          input_owners_(schedule.input.owners()),
          output_owners_(schedule.output.owners()),
          first_rank_(schedule.rank_of_stage.front()),
          last_rank_(schedule.rank_of_stage.back()),
          boundary_bytes_(sizes.tokens * sizes.hidden * size_of(sizes.dtype)) {}

    Dataflow build() {
        flow_.reductions = {row_blocks(output_owners_.size(), DType::fp32),
                            row_blocks(input_owners_.size(), sizes_.dtype),
                            row_blocks(1, DType::fp32)};
        add_passes();
        for (uint32_t j = 0; j < microbatches_; ++j) {
            uint32_t x = embed(j);
            x = run_forward(j, x);
            const uint32_t dy = run_output_layer(j, x);
            if (backward_) embed_gradient(j, run_backward(j, dy));
        }
        if (backward_) end_step();
        set_durations();
        return std::move(flow_);
    }

private:
    // --- nodes, parts, buffers -------------------------------------------------------------------

    uint32_t add_node(Lane lane) {
        flow_.nodes.push_back({static_cast<uint32_t>(flow_.parts.size()), 0, lane, 0});
        return static_cast<uint32_t>(flow_.nodes.size() - 1);
    }

    Part& add_part(uint32_t node, int rank, Do what, uint32_t item,
                   std::initializer_list<uint32_t> operands) {
        Part part;
        part.rank = static_cast<uint16_t>(rank);
        part.what = what;
        part.item = item;
        part.operand_count = static_cast<uint8_t>(operands.size());
        std::copy(operands.begin(), operands.end(), part.operands.begin());
        flow_.parts.push_back(part);
        ++flow_.nodes[node].part_count;
        return flow_.parts.back();
    }

    /// A pair that is lowered as one waits for the inputs of both members before its first, and
    /// gives what either makes after its second.
    void edge(uint32_t before, uint32_t after) {
        if (options_.pairs != Pairs::apart) {
            before = last_of_pair(before);
            after = first_of_pair(after);
        }
        flow_.edges.emplace_back(before, after);
    }

    [[nodiscard]] bool opens_pair(uint32_t pass_node) const {
        const Part& part = flow_.parts[flow_.nodes[pass_node].first_part];
        return part.what == Do::pass && flow_.passes[part.rank][part.item].with_next;
    }
    /// Passes of a rank are nodes one after the other.
    [[nodiscard]] uint32_t last_of_pair(uint32_t node) const {
        return opens_pair(node) ? node + 1 : node;
    }
    [[nodiscard]] uint32_t first_of_pair(uint32_t node) const {
        const Part& part = flow_.parts[flow_.nodes[node].first_part];
        const bool second = part.what == Do::pass && part.item > 0 && opens_pair(node - 1);
        return second ? node - 1 : node;
    }

    uint32_t buffer(int rank, int64_t bytes, Purpose purpose,
                    Buffer::Space space = Buffer::Space::arena) {
        if (bytes <= 0) return kNoBuffer;
        flow_.buffers.push_back({static_cast<uint16_t>(rank), purpose, space, bytes, 0, {}});
        return static_cast<uint32_t>(flow_.buffers.size() - 1);
    }

    uint16_t group(Group wanted, Axis axis = Axis::pipeline) {
        for (size_t i = 0; i < flow_.groups.size(); ++i) {
            if (flow_.axes[i] == axis && flow_.groups[i] == wanted) return static_cast<uint16_t>(i);
        }
        flow_.groups.push_back(std::move(wanted));
        flow_.axes.push_back(axis);
        return static_cast<uint16_t>(flow_.groups.size() - 1);
    }

    /// One look-up per message instead of a search among all groups.
    uint16_t pair_of(int source, int destination) {
        const auto ranks = static_cast<size_t>(schedule_.ranks);
        if (pairs_.empty()) pairs_.assign(ranks * ranks, kNoPair);
        uint16_t& pair = pairs_[static_cast<size_t>(source) * ranks + destination];
        if (pair == kNoPair) pair = group({{source, destination}, -1});
        return pair;
    }

    static Group with_root(std::vector<int> ranks, int root) {
        if (!std::binary_search(ranks.begin(), ranks.end(), root)) {
            ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), root), root);
        }
        return {std::move(ranks), root};
    }

    [[nodiscard]] Reduction row_blocks(size_t members, DType partial) const {
        Reduction reduction{{}, sizes_.hidden, partial, sizes_.dtype, {}};
        const auto count = static_cast<int64_t>(members);
        for (int64_t i = 0; i <= count; ++i) {
            reduction.first_row.push_back(sizes_.tokens * i / count);
        }
        return reduction;
    }

    // --- passes ----------------------------------------------------------------------------------

    void add_passes() {
        const auto ranks = static_cast<size_t>(schedule_.ranks);
        flow_.passes.resize(ranks);
        last_pass_.assign(ranks, kNoNode);
        last_of_input_ = last_of_output_ = last_pass_;
        last_of_stage_.assign(static_cast<size_t>(schedule_.stages), kNoNode);
        of_stage_.fill({});
        of_rank_.fill({});
        for (auto& nodes : of_stage_) {
            nodes.assign(static_cast<size_t>(schedule_.stages) * microbatches_, kNoNode);
        }
        for (auto& nodes : of_rank_) nodes.assign(ranks * microbatches_, kNoNode);
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            // The first pass of the step that adds to a weight's gradient overwrites what is there.
            std::vector<bool> stage_begun(static_cast<size_t>(schedule_.stages), false);
            bool input_begun = false;
            bool output_begun = false;
            for (const Pass& pass : schedule_.passes[static_cast<size_t>(rank)]) {
                const uint32_t node = append_pass(rank, pass);
                Part& part = flow_.parts.back();
                if (pass.op == Op::B || pass.op == Op::W) {
                    part.overwrites = !stage_begun[pass.stage];
                    stage_begun[pass.stage] = true;
                    last_of_stage_[pass.stage] = node;
                } else if (pass.op == Op::G) {
                    part.overwrites = !std::exchange(input_begun, true);
                    last_of_input_[static_cast<size_t>(rank)] = node;
                } else if (pass.op == Op::T) {
                    part.overwrites = !std::exchange(output_begun, true);
                    last_of_output_[static_cast<size_t>(rank)] = node;
                }
                (traits(pass.op).has_stage ? stage_node(pass.op, pass.stage, pass.microbatch)
                                           : rank_node(pass.op, rank, pass.microbatch)) = node;
            }
        }
    }

    /// Node and part of a pass, after the previous pass of its rank; operands follow.
    uint32_t append_pass(int rank, const Pass& pass) {
        auto& list = flow_.passes[static_cast<size_t>(rank)];
        const uint32_t node = add_node(Lane::compute);
        add_part(node, rank, Do::pass, static_cast<uint32_t>(list.size()), {});
        list.push_back(pass);
        uint32_t& last = last_pass_[static_cast<size_t>(rank)];
        if (last != kNoNode) flow_.edges.emplace_back(last, node);
        last = node;
        return node;
    }

    uint32_t& stage_node(Op op, int stage, uint32_t microbatch) {
        return of_stage_[static_cast<size_t>(op)]
                        [static_cast<size_t>(stage) * microbatches_ + microbatch];
    }
    uint32_t& rank_node(Op op, int rank, uint32_t microbatch) {
        return of_rank_[static_cast<size_t>(op) - static_cast<size_t>(Op::E)]
                       [static_cast<size_t>(rank) * microbatches_ + microbatch];
    }

    void set_operands(uint32_t pass_node, std::initializer_list<uint32_t> operands) {
        Part& part = flow_.parts[flow_.nodes[pass_node].first_part];
        part.operand_count = static_cast<uint8_t>(operands.size());
        std::copy(operands.begin(), operands.end(), part.operands.begin());
    }

    // --- communication ---------------------------------------------------------------------------

    /// Moves `from` to `to` on another rank, in time for `consumer`.
    void message(int source, uint32_t from, int destination, uint32_t to, Lane lane,
                 uint32_t microbatch, uint32_t producer, uint32_t consumer) {
        const uint16_t pair = pair_of(source, destination);
        const uint32_t node = add_node(lane);
        add_part(node, source, Do::send, microbatch, {from}).group = pair;
        add_part(node, destination, Do::receive, microbatch, {to}).group = pair;
        edge(producer, node);
        edge(node, consumer);
        // Posted `receive_ahead` passes before use: not earlier, or the buffer lives for nothing.
        if (options_.pairs != Pairs::apart) consumer = first_of_pair(consumer);
        const uint32_t posted_with = passes_before(consumer, options_.receive_ahead);
        if (posted_with != kNoNode && position_of(posted_with) > 0) edge(posted_with - 1, node);
    }

    /// The pass that comes `count` passes before another one on its rank. Recomputations do not
    /// count: next to a transfer they may be short.
    [[nodiscard]] uint32_t passes_before(uint32_t pass_node, int count) const {
        const Part& part = flow_.parts[flow_.nodes[pass_node].first_part];
        const std::vector<Pass>& list = flow_.passes[part.rank];
        if (static_cast<uint32_t>(count) > part.item) return kNoNode;
        uint32_t position = part.item;
        while (count > 0 && position > 0) count -= list[--position].op == Op::R ? 0 : 1;
        return count == 0 ? pass_node - (part.item - position) : kNoNode;
    }
    [[nodiscard]] uint32_t position_of(uint32_t pass_node) const {
        return flow_.parts[flow_.nodes[pass_node].first_part].item;
    }

    /// `x` on the root to every other rank of `owners`; returns the buffers by owner. `ready`
    /// becomes the node after which each owner has it.
    std::vector<uint32_t> broadcast(const std::vector<int>& owners, int root, uint32_t x,
                                    uint32_t producer, uint32_t microbatch, Purpose purpose,
                                    uint32_t& ready) {
        ready = producer;
        std::vector<uint32_t> copies(owners.size(), x);
        if (owners.size() == 1 && owners.front() == root) return copies;
        const Group members = with_root(owners, root);
        const uint16_t index = group(members);
        const uint32_t node = add_node(Lane::collective);
        for (const int rank : members.ranks) {
            const uint32_t copy = rank == root ? x : buffer(rank, boundary_bytes_, purpose);
            add_part(node, rank, Do::broadcast, microbatch, {copy}).group = index;
            const auto owner = std::find(owners.begin(), owners.end(), rank);
            if (owner != owners.end()) copies[static_cast<size_t>(owner - owners.begin())] = copy;
        }
        edge(producer, node);
        ready = node;
        return copies;
    }

    /// Adds up `partial[i]` of owner i, ready after producer[i], into `sum` on the root. Returns
    /// the node after which the sum is complete.
    uint32_t reduce(uint16_t which, const std::vector<int>& owners,
                    const std::vector<uint32_t>& partial, const std::vector<uint32_t>& producer,
                    int root, uint32_t sum, uint32_t microbatch) {
        const bool root_owns = std::find(owners.begin(), owners.end(), root) != owners.end();
        return options_.reductions == Reductions::native && owners.size() > 1 && root_owns
                   ? reduce_natively(which, owners, partial, producer, root, sum, microbatch)
                   : reduce_in_order(which, owners, partial, producer, root, sum, microbatch);
    }

    uint32_t reduce_natively(uint16_t which, const std::vector<int>& owners,
                             const std::vector<uint32_t>& partial,
                             const std::vector<uint32_t>& producer, int root, uint32_t sum,
                             uint32_t microbatch) {
        const Reduction& reduction = flow_.reductions[which];
        const bool converts = reduction.partial != reduction.result;
        const uint32_t total =
            converts ? buffer(root, sizes_.tokens * reduction.cols * size_of(reduction.partial),
                              Purpose::partial_sums)
                     : sum;
        const uint16_t members = group({owners, root});
        const uint32_t node = add_node(Lane::collective);
        for (size_t i = 0; i < owners.size(); ++i) {
            Part& part = add_part(node, owners[i], Do::reduce, microbatch,
                                  {partial[i], owners[i] == root ? total : kNoBuffer});
            part.group = members;
            part.reduction = which;
            edge(producer[i], node);
        }
        if (!converts) return node;
        const uint16_t alone = group({{root}, -1});
        const uint32_t conversion = add_node(Lane::local);
        Part& part = add_part(conversion, root, Do::ordered_sum, microbatch, {total, sum});
        part.group = alone;
        part.reduction = kOutputConversion;
        edge(node, conversion);
        return conversion;
    }

    /// In group order.
    uint32_t reduce_in_order(uint16_t which, const std::vector<int>& owners,
                             const std::vector<uint32_t>& partial,
                             const std::vector<uint32_t>& producer, int root, uint32_t sum,
                             uint32_t microbatch) {
        const Reduction& reduction = flow_.reductions[which];
        const uint16_t members = group({owners, -1});
        const bool sharded = owners.size() > 1;
        const bool at_root_only = !sharded && owners.front() == root;
        std::vector<uint32_t> blocks = partial;
        std::vector<uint32_t> ready = producer;
        if (sharded) {
            const uint32_t node = add_node(Lane::collective);
            for (size_t i = 0; i < owners.size(); ++i) {
                const int64_t rows = reduction.rows(static_cast<int>(i));
                blocks[i] = buffer(owners[i],
                                   static_cast<int64_t>(owners.size()) * rows * reduction.cols *
                                       size_of(reduction.partial),
                                   Purpose::partial_sums);
                Part& part =
                    add_part(node, owners[i], Do::all_to_all, microbatch, {partial[i], blocks[i]});
                part.group = members;
                part.reduction = which;
                edge(producer[i], node);
            }
            ready.assign(owners.size(), node);
        }
        // A single partial needs no adding, only the conversion to the result's type, if any.
        if (sharded || reduction.partial != reduction.result || which == kOutputReduction) {
            for (size_t i = 0; i < owners.size(); ++i) {
                const int64_t bytes = reduction.rows(static_cast<int>(i)) * reduction.cols *
                                      size_of(reduction.result);
                const uint32_t out =
                    at_root_only ? sum : buffer(owners[i], bytes, Purpose::partial_sums);
                const uint32_t node = add_node(Lane::local);
                Part& part =
                    add_part(node, owners[i], Do::ordered_sum, microbatch, {blocks[i], out});
                part.group = members;
                part.reduction = which;
                edge(ready[i], node);
                ready[i] = node;
                blocks[i] = out;
            }
        }
        if (at_root_only) return ready.front();
        const Group all = with_root(owners, root);
        const uint16_t index = group(all);
        const uint32_t node = add_node(Lane::collective);
        for (const int rank : all.ranks) {
            const auto owner = std::find(owners.begin(), owners.end(), rank);
            const uint32_t block = owner == owners.end()
                                       ? kNoBuffer
                                       : blocks[static_cast<size_t>(owner - owners.begin())];
            Part& part = add_part(node, rank, Do::gather, microbatch,
                                  {block, rank == root ? sum : kNoBuffer});
            part.group = index;
            part.reduction = which;
        }
        for (const uint32_t before : ready) edge(before, node);
        return node;
    }

    // --- one microbatch, front to back

    /// E on every input shard; returns x of stage 0, the sum of the shards' rows.
    uint32_t embed(uint32_t j) {
        const uint32_t x = buffer(first_rank_, boundary_bytes_, Purpose::boundary);
        const uint32_t forward = stage_node(Op::F, 0, j);
        const bool direct = input_owners_.size() == 1 && input_owners_.front() == first_rank_;
        std::vector<uint32_t> partial;
        std::vector<uint32_t> producer;
        for (const int rank : input_owners_) {
            partial.push_back(direct ? x : buffer(rank, boundary_bytes_, Purpose::partial_sums));
            producer.push_back(rank_node(Op::E, rank, j));
            set_operands(producer.back(), {partial.back()});
        }
        edge(direct ? producer.front()
                    : reduce(kInputReduction, input_owners_, partial, producer, first_rank_, x, j),
             forward);
        return x;
    }

    /// F of all stages; returns X, the output of the last one.
    uint32_t run_forward(uint32_t j, uint32_t x) {
        for (int s = 0; s < schedule_.stages; ++s) {
            const StageBytes& bytes = sizes_.stages[static_cast<size_t>(s)];
            const int rank = schedule_.rank_of_stage[static_cast<size_t>(s)];
            const uint32_t forward = stage_node(Op::F, s, j);
            const bool last = s + 1 == schedule_.stages;
            const uint32_t y =
                buffer(rank, boundary_bytes_, last ? Purpose::vocabulary : Purpose::boundary);
            const uint32_t saved = buffer(rank, bytes.saved, Purpose::activation);
            // With an R, what F makes of `recomputed` is scratch, and R makes the one that stays.
            const uint32_t again = stage_node(Op::R, s, j);
            const bool recomputes = again != kNoNode;
            uint32_t recomputed = buffer(rank, bytes.recomputed,
                                         recomputes ? Purpose::workspace : Purpose::activation);
            set_operands(forward, {x, y, saved, recomputed,
                                   buffer(rank, bytes.forward_workspace, Purpose::workspace)});
            if (recomputes) {
                recomputed = buffer(rank, bytes.recomputed, Purpose::activation);
                set_operands(again, {x, saved, recomputed,
                                     buffer(rank, bytes.forward_workspace, Purpose::workspace)});
            }
            if (backward_) kept_.push_back({x, saved, recomputed});
            x = y;
            if (last) break;
            const uint32_t next = stage_node(Op::F, s + 1, j);
            const int next_rank = schedule_.rank_of_stage[static_cast<size_t>(s) + 1];
            if (next_rank == rank) {
                edge(forward, next);
            } else {
                x = buffer(next_rank, boundary_bytes_, Purpose::boundary);
                message(rank, y, next_rank, x, Lane::forward, j, forward, next);
            }
        }
        return x;
    }

    /// C0, S, C1, T and C2; returns the gradient of X on the last stage's rank.
    uint32_t run_output_layer(uint32_t j, uint32_t x) {
        const bool one_barrier = schedule_.barriers == Barriers::one;
        const size_t owners = output_owners_.size();
        const uint32_t last_forward = stage_node(Op::F, schedule_.stages - 1, j);
        uint32_t c0 = kNoNode;
        const std::vector<uint32_t> copies =
            broadcast(output_owners_, last_rank_, x, last_forward, j, Purpose::vocabulary, c0);
        const int64_t statistics_bytes = sizes_.tokens * StepSizes::kStatistics * 4;
        const int64_t factors_bytes = sizes_.tokens * StepSizes::kFactors * 4;
        const int64_t gradient_bytes = sizes_.tokens * sizes_.hidden * 4;

        struct Shard {
            uint32_t score, exp_logits, statistics, all, gradient, factors, combine;
        };
        std::vector<Shard> shards(owners);
        for (size_t i = 0; i < owners; ++i) {
            const int rank = output_owners_[i];
            const ShardBytes& bytes = sizes_.shards[static_cast<size_t>(rank)];
            Shard& shard = shards[i];
            shard.score = rank_node(Op::S, rank, j);
            shard.exp_logits = buffer(rank, bytes.exp_logits, Purpose::vocabulary);
            shard.statistics = buffer(rank, statistics_bytes, Purpose::vocabulary);
            shard.gradient =
                backward_ ? buffer(rank, gradient_bytes, Purpose::vocabulary) : kNoBuffer;
            edge(rank == last_rank_ ? last_forward : c0, shard.score);
            set_operands(shard.score, {copies[i], shard.exp_logits, shard.statistics,
                                       one_barrier ? shard.gradient : kNoBuffer,
                                       buffer(rank, bytes.score_workspace, Purpose::workspace)});
            shard.all = shard.statistics;
        }

        uint32_t c1 = kNoNode;
        if (owners > 1) {
            const uint16_t members = group({output_owners_, -1});
            c1 = add_node(Lane::collective);
            for (size_t i = 0; i < owners; ++i) {
                shards[i].all =
                    buffer(output_owners_[i], statistics_bytes * static_cast<int64_t>(owners),
                           Purpose::vocabulary);
                add_part(c1, output_owners_[i], Do::all_gather, j,
                         {shards[i].statistics, shards[i].all})
                    .group = members;
                edge(shards[i].score, c1);
            }
        }

        const uint16_t members = group({output_owners_, -1});
        std::vector<uint32_t> gradients;
        std::vector<uint32_t> producers;
        for (size_t i = 0; i < owners; ++i) {
            const int rank = output_owners_[i];
            Shard& shard = shards[i];
            shard.factors =
                backward_ ? buffer(rank, factors_bytes, Purpose::vocabulary) : kNoBuffer;
            const uint32_t in_combine = one_barrier ? shard.gradient : kNoBuffer;
            shard.combine = add_node(Lane::local);
            add_part(shard.combine, rank, Do::combine_softmax, j,
                     {shard.all, shard.factors, in_combine})
                .group = members;
            edge(owners > 1 ? c1 : shard.score, shard.combine);
            if (!backward_) continue;
            const uint32_t backward = rank_node(Op::T, rank, j);
            edge(shard.combine, backward);
            set_operands(
                backward,
                {copies[i], shard.exp_logits, shard.factors,
                 one_barrier ? kNoBuffer : shard.gradient,
                 buffer(rank, sizes_.shards[static_cast<size_t>(rank)].weight_gradient_workspace,
                        Purpose::workspace)});
            gradients.push_back(shard.gradient);
            producers.push_back(one_barrier ? shard.combine : backward);
        }
        if (!backward_) return kNoBuffer;
        const uint32_t dy = buffer(last_rank_, boundary_bytes_, Purpose::boundary);
        const uint32_t done =
            reduce(kOutputReduction, output_owners_, gradients, producers, last_rank_, dy, j);
        edge(done, backward_node(schedule_.stages - 1, j));
        return dy;
    }

    [[nodiscard]] bool is_split(int stage, uint32_t j) {
        return stage_node(Op::B, stage, j) == kNoNode;
    }
    uint32_t backward_node(int stage, uint32_t j) {
        return stage_node(is_split(stage, j) ? Op::I : Op::B, stage, j);
    }

    /// B, or I and W, of all stages; returns the gradient of stage 0's input.
    uint32_t run_backward(uint32_t j, uint32_t dy) {
        for (int s = schedule_.stages - 1; s >= 0; --s) {
            const StageBytes& bytes = sizes_.stages[static_cast<size_t>(s)];
            const int rank = schedule_.rank_of_stage[static_cast<size_t>(s)];
            const auto [x, saved, recomputed] =
                kept_[static_cast<size_t>(j) * static_cast<size_t>(schedule_.stages) +
                      static_cast<size_t>(s)];
            const uint32_t dx = buffer(rank, boundary_bytes_, Purpose::boundary);
            const uint32_t node = backward_node(s, j);
            if (is_split(s, j)) {
                const uint32_t for_weight = buffer(rank, bytes.for_weight, Purpose::activation);
                set_operands(node,
                             {dy, x, saved, recomputed, dx, for_weight,
                              buffer(rank, bytes.input_gradient_workspace, Purpose::workspace)});
                const uint32_t weight = stage_node(Op::W, s, j);
                set_operands(weight,
                             {x, saved, recomputed, for_weight,
                              buffer(rank, bytes.weight_gradient_workspace, Purpose::workspace)});
                edge(node, weight);
            } else {
                set_operands(node, {dy, x, saved, recomputed, dx,
                                    buffer(rank, bytes.backward_workspace, Purpose::workspace)});
            }
            edge(stage_node(Op::F, s, j), node);
            dy = dx;
            if (s == 0) break;
            const int next_rank = schedule_.rank_of_stage[static_cast<size_t>(s) - 1];
            const uint32_t next = backward_node(s - 1, j);
            if (next_rank == rank) {
                edge(node, next);
            } else {
                dy = buffer(next_rank, boundary_bytes_, Purpose::boundary);
                message(rank, dx, next_rank, dy, Lane::backward, j, node, next);
            }
        }
        return dy;
    }

    /// G on every input shard.
    void embed_gradient(uint32_t j, uint32_t dx) {
        uint32_t arrived = kNoNode;
        const uint32_t producer = backward_node(0, j);
        const std::vector<uint32_t> copies =
            broadcast(input_owners_, first_rank_, dx, producer, j, Purpose::boundary, arrived);
        for (size_t i = 0; i < input_owners_.size(); ++i) {
            const uint32_t gradient = rank_node(Op::G, input_owners_[i], j);
            set_operands(gradient, {copies[i]});
            edge(input_owners_[i] == first_rank_ ? producer : arrived, gradient);
        }
    }

    // --- end of step -----------------------------------------------------------------------------

    void end_step() {
        if (sizes_.tied) reduce_tied_gradients();
        if (sizes_.report_bytes == 0) return;
        std::vector<int> everyone;
        for (int rank = 0; rank < schedule_.ranks; ++rank) everyone.push_back(rank);
        const bool alone = schedule_.ranks == 1 && sizes_.replicas == 1;
        const uint16_t world =
            group({everyone, -1}, sizes_.replicas == 1 ? Axis::pipeline : Axis::world);
        std::vector<uint32_t> norms;
        std::vector<uint32_t> reports;
        for (const int rank : everyone) {
            reports.push_back(buffer(rank, sizes_.report_bytes, Purpose::report));
            const std::vector<uint32_t> reduced =
                sizes_.replicas == 1 ? std::vector<uint32_t>{} : reduce_over_replicas(rank);
            norms.push_back(append_pass(rank, {.op = Op::Report}));
            set_operands(norms.back(), {reports.back()});
            for (const uint32_t sum : reduced) edge(sum, norms.back());
        }
        uint32_t gathered = kNoNode;
        std::vector<uint32_t> all = reports;
        if (!alone) {
            gathered = add_node(Lane::collective);
            for (const int rank : everyone) {
                const auto r = static_cast<size_t>(rank);
                all[r] = buffer(rank, sizes_.report_bytes * schedule_.ranks * sizes_.replicas,
                                Purpose::report);
                add_part(gathered, rank, Do::all_gather, 0, {reports[r], all[r]}).group = world;
                edge(norms[r], gathered);
            }
        }
        for (const int rank : everyone) {
            const uint32_t update = append_pass(rank, {.op = Op::Update});
            set_operands(update, {all[static_cast<size_t>(rank)]});
            if (!alone) edge(gathered, update);
            if (sizes_.replicas > 1) gather_weights(rank, update);
        }
    }

    // --- data parallelism ------------------------------------------------------------------------

    /// Messages of a piece are long enough for any network, and two pieces small beside a layer.
    static constexpr int64_t kPieceElements = int64_t{1} << 23;

    [[nodiscard]] uint32_t last_gradient_of(int rank, const GradientBucket& bucket) const {
        const auto r = static_cast<size_t>(rank);
        switch (bucket.of) {
            case GradientBucket::Of::input:
                return last_of_input_[r];
            case GradientBucket::Of::output:
                return last_of_output_[r];
            default:
                return last_of_stage_[static_cast<size_t>(bucket.stage)];
        }
    }

    uint16_t reduction_index(Reduction wanted) {
        const auto found = std::find(flow_.reductions.begin() + 3, flow_.reductions.end(), wanted);
        if (found != flow_.reductions.end()) {
            return static_cast<uint16_t>(found - flow_.reductions.begin());
        }
        flow_.reductions.push_back(std::move(wanted));
        return static_cast<uint16_t>(flow_.reductions.size() - 1);
    }

    /// Piece `piece` of `pieces` of every replica's block.
    [[nodiscard]] Reduction piece_of(const GradientBucket& bucket, int64_t piece,
                                     int64_t pieces) const {
        Reduction part{{}, 1, DType::fp32, DType::fp32, {}};
        for (size_t i = 0; i + 1 < bucket.first.size(); ++i) {
            const int64_t begin = bucket.first[i];
            const int64_t length = bucket.first[i + 1] - begin;
            const auto cut = [&](int64_t k) {
                return k == pieces ? begin + length : begin + length * k / pieces / 32 * 32;
            };
            part.first_row.push_back(cut(piece));
            part.last_row.push_back(cut(piece + 1));
        }
        return part;
    }

    /// This replica's own block of a reduction, in its bucket.
    uint32_t own_block(int rank, uint16_t bucket, Buffer::Space space, uint16_t reduction,
                       int64_t width) {
        const uint32_t block = blocks_buffer(rank, 1, space, reduction, width);
        flow_.buffers[block].bucket = bucket;
        return block;
    }
    /// Room for as large a block as any replica has, `copies` times.
    uint32_t blocks_buffer(int rank, int copies, Buffer::Space space, uint16_t reduction,
                           int64_t width) {
        const Reduction& parts = flow_.reductions[reduction];
        int64_t largest = 1;
        for (int i = 0; i < sizes_.replicas; ++i) largest = std::max(largest, parts.rows(i));
        const uint32_t made = buffer(rank, largest * width * copies, Purpose::replicas, space);
        flow_.buffers[made].block = {reduction, static_cast<uint16_t>(copies),
                                     static_cast<uint8_t>(width)};
        return made;
    }

    /// Every bucket of a rank, in the order in which its gradients are complete: blocks of all
    /// replicas to the one that updates them, added up in replica order. Returns the nodes after
    /// which they are.
    std::vector<uint32_t> reduce_over_replicas(int rank) {
        const std::vector<GradientBucket>& buckets = sizes_.buckets[static_cast<size_t>(rank)];
        const uint16_t replicas = group({{rank}, -1}, Axis::data);
        std::vector<uint16_t> order(buckets.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint16_t>(i);
        std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) {
            return last_gradient_of(rank, buckets[a]) < last_gradient_of(rank, buckets[b]);
        });
        std::vector<uint32_t> sums;
        for (const uint16_t b : order) {
            const GradientBucket& bucket = buckets[b];
            const int64_t elements = bucket.first.back() - bucket.first.front();
            const int64_t pieces = std::max<int64_t>(1, elements / kPieceElements);
            for (int64_t piece = 0; piece < pieces; ++piece) {
                Reduction part = piece_of(bucket, piece, pieces);
                int64_t bytes = 0;
                for (int i = 0; i < sizes_.replicas; ++i) bytes += part.rows(i) * 4;
                const uint16_t reduction = reduction_index(std::move(part));
                const uint32_t mine =
                    buffer(rank, bytes, Purpose::replicas, Buffer::Space::bucket_gradients);
                flow_.buffers[mine].bucket = b;
                const uint32_t theirs =
                    blocks_buffer(rank, sizes_.replicas, Buffer::Space::arena, reduction, 4);
                const uint32_t node = add_node(Lane::collective);
                Part& blocks = add_part(node, rank, Do::all_to_all, b, {mine, theirs});
                blocks.group = replicas;
                blocks.reduction = reduction;
                edge(last_gradient_of(rank, bucket), node);
                // Two pieces at a time have room.
                if (sums.size() >= 2) edge(sums[sums.size() - 2], node);
                const uint32_t sum =
                    own_block(rank, b, Buffer::Space::bucket_gradients, reduction, 4);
                const uint32_t add = add_node(Lane::local);
                Part& adds = add_part(add, rank, Do::ordered_sum, b, {theirs, sum});
                adds.group = replicas;
                adds.reduction = reduction;
                edge(node, add);
                sums.push_back(add);
            }
        }
        return sums;
    }

    /// What every replica has updated, to all of them.
    void gather_weights(int rank, uint32_t update) {
        const std::vector<GradientBucket>& buckets = sizes_.buckets[static_cast<size_t>(rank)];
        const uint16_t replicas = group({{rank}, -1}, Axis::data);
        for (uint16_t b = 0; b < buckets.size(); ++b) {
            const uint16_t reduction =
                reduction_index({buckets[b].first, 1, sizes_.dtype, sizes_.dtype, {}});
            const int64_t width = size_of(sizes_.dtype);
            const uint32_t all = buffer(rank, buckets[b].first.back() * width, Purpose::replicas,
                                        Buffer::Space::bucket_weights);
            flow_.buffers[all].bucket = b;
            const uint32_t mine =
                own_block(rank, b, Buffer::Space::bucket_weights, reduction, width);
            const uint32_t node = add_node(Lane::collective);
            Part& part = add_part(node, rank, Do::all_gather_v, b, {mine, all});
            part.group = replicas;
            part.reduction = reduction;
            edge(update, node);
        }
    }

    /// A tied weight has a gradient from G and one from T; they are added once, E side first.
    /// Shards that coincide do it locally; whole layers on two ranks exchange their halves.
    void reduce_tied_gradients() {
        if (schedule_.input == schedule_.output) {
            for (const int rank : input_owners_) {
                const uint32_t reduce = append_pass(rank, {.op = Op::Reduce});
                set_operands(reduce, {kNoBuffer});
                last_of_input_[static_cast<size_t>(rank)] = reduce;
            }
            return;
        }
        if (input_owners_.size() != 1 || output_owners_.size() != 1) {
            throw UsageError(
                "tied embeddings: input and output layer are sharded differently; use equal shard "
                "maps, or each layer whole on one rank");
        }
        const int in = input_owners_.front();
        const int out = output_owners_.front();
        const int64_t bytes = schedule_.input.vocab_size() * sizes_.hidden * 4;
        const uint32_t in_last = last_pass_[static_cast<size_t>(in)];
        const uint32_t out_last = last_pass_[static_cast<size_t>(out)];
        const uint32_t at_in = buffer(in, bytes, Purpose::tied);
        const uint32_t at_out = buffer(out, bytes, Purpose::tied);
        const uint32_t reduce_in = append_pass(in, {.op = Op::Reduce});
        const uint32_t reduce_out = append_pass(out, {.op = Op::Reduce});
        set_operands(reduce_in, {at_in});
        set_operands(reduce_out, {at_out});
        last_of_input_[static_cast<size_t>(in)] = reduce_in;
        last_of_output_[static_cast<size_t>(out)] = reduce_out;
        const auto exchange = [&](int from, uint32_t producer, Buffer::Space space, int to,
                                  uint32_t received, uint32_t consumer) {
            const uint32_t sent = buffer(from, bytes, Purpose::tied, space);
            const uint16_t pair = group({{from, to}, -1});
            const uint32_t node = add_node(Lane::collective);
            add_part(node, from, Do::send, 0, {sent}).group = pair;
            add_part(node, to, Do::receive, 0, {received}).group = pair;
            edge(producer, node);
            edge(node, consumer);
            // The sum overwrites what the other side still reads.
            edge(node, from == in ? reduce_in : reduce_out);
        };
        exchange(in, in_last, Buffer::Space::embedding_gradient, out, at_out, reduce_out);
        exchange(out, out_last, Buffer::Space::output_gradient, in, at_in, reduce_in);
    }

    // --- time ------------------------------------------------------------------------------------

    void set_durations() {
        for (Node& node : flow_.nodes) {
            const std::span<const Part> parts(flow_.parts.data() + node.first_part,
                                              node.part_count);
            node.duration_ns = duration_of(parts);
        }
    }

    [[nodiscard]] int64_t duration_of(std::span<const Part> parts) const {
        const auto sizes = [this](uint32_t buffer) { return flow_.buffers[buffer].bytes; };
        const auto operands = [](const Part& part) {
            return std::span<const uint32_t>(part.operands.data(), part.operand_count);
        };
        const Part& first = parts.front();
        if (first.what == Do::pass) {
            return pass_duration(costs_, first.rank * sizes_.replicas, flow_.passes[first.rank],
                                 first.item, options_.pairs);
        }
        if (!is_communication(first.what)) {
            return costs_.local_ns(first.what, bytes_touched(operands(first), sizes));
        }
        int64_t bytes = 0;
        for (const Part& part : parts) {
            bytes = std::max(bytes, bytes_sent(operands(part), sizes));
        }
        return costs_.transfer_ns(transfer_kind(first.what), in_world(first.group), bytes);
    }

    [[nodiscard]] Group in_world(uint16_t group) const {
        return group_of_replica(flow_, group, {schedule_.ranks, sizes_.replicas}, 0);
    }

    const Schedule& schedule_;
    const StepSizes& sizes_;
    const CostModel& costs_;
    const LowerOptions& options_;
    const uint32_t microbatches_;
    const bool backward_;
    const std::vector<int> input_owners_;
    const std::vector<int> output_owners_;
    const int first_rank_;
    const int last_rank_;
    const int64_t boundary_bytes_;

    static constexpr uint16_t kNoPair = UINT16_MAX;
    std::vector<uint16_t> pairs_;  ///< [source * ranks + destination] group
    Dataflow flow_;
    std::array<std::vector<uint32_t>, 5> of_stage_;  ///< F B I W R: [stage * m + microbatch]
    std::array<std::vector<uint32_t>, 4> of_rank_;   ///< E G S T: [rank * m + microbatch]
    std::vector<uint32_t> last_pass_;                ///< [rank]
    /// After which the gradients are complete: [rank], [rank], [stage].
    std::vector<uint32_t> last_of_input_, last_of_output_, last_of_stage_;
    /// Buffers that live from F, or R, to the end of the backward.
    struct Kept {
        uint32_t x, saved, recomputed;
    };
    std::vector<Kept> kept_;  ///< [microbatch * n + stage]
};

}  // namespace

Dataflow build_dataflow(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                        const LowerOptions& options) {
    return Builder(schedule, sizes, costs, options).build();
}

}  // namespace vocabpipe::lowering
