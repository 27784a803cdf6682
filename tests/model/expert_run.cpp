// SPDX-License-Identifier: Apache-2.0
#include "tests/model/expert_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "src/model/blocks/layer_options.hpp"
#include "src/model/tensor_shard.hpp"
#include "tests/model/teams_of_threads.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe::testing {

namespace {

constexpr int kMicrobatches = 2;

std::vector<float> values_of(ConstTensor from) {
    std::vector<float> values;
    for (int64_t i = 0; i < from.size(); ++i) {
        values.push_back(
            static_cast<float>(kernels::reference::get(from, i / from.cols, i % from.cols)));
    }
    return values;
}

FeedForwardOptions options_of(const ExpertRun& run, int ranks) {
    FeedForwardOptions options =
        feed_forward_options(run.config, run.layer,
                             {.expert = ranks,
                              .expert_tensor = ranks == 1 ? 1 : run.expert_tensor,
                              .row_factor = run.row_factor});
    options.moe->experts.pieces = {.dispatch = run.pieces, .combine = run.panels};
    return options;
}

/// One rank's block, of the members' or of one that is alone.
class Rank {
public:
    Rank(const ExpertRun& run, TileLink* link)
        : run_(run),
          link_(link),
          place_{.rank = link != nullptr ? link->rank() : 0,
                 .ranks = link != nullptr ? link->size() : 1,
                 .expert_tensor = link != nullptr ? run.expert_tensor : 1},
          ctx_({.threads = 1,
                .poll =
                    [link] {
                        if (link != nullptr) link->poll();
                    },
                .operators = &device_->operators()}),
          held_(parameters()),
          source_(held_),
          block_(options_of(run, place_.ranks), source_) {
        results_.bytes = bytes();
    }

    /// Runs it on the member that it belongs to.
    void run_microbatch(unsigned seed, bool accumulate) {
        const Poisoned saved(*device_, results_.bytes.saved);
        Poisoned recomputed(*device_, results_.bytes.recomputed);
        const Poisoned gradients(*device_, results_.bytes.gradients);
        const Poisoned x(*device_, boundary_bytes()), residual(*device_, boundary_bytes());
        const Poisoned y(*device_, boundary_bytes()), dy(*device_, boundary_bytes());
        const Poisoned dx(*device_, boundary_bytes());
        write(rows(x), tokens(seed));
        write(rows(residual), random_values(rows(x).size(), seed + 1, 1));
        write(rows(dy), random_values(rows(x).size(), seed + 2, 1));

        Views saved_memory(saved.bytes()), recomputed_memory(recomputed.bytes());
        const FeedForward::Saved left = saved_views(saved_memory, recomputed_memory);
        Views gradient_memory(gradients.bytes());
        const FeedForward::Gradients of_weight = gradient_views(gradient_memory);
        const std::vector<float> weights(static_cast<size_t>(run_.tokens),
                                         1 / static_cast<float>(run_.tokens));
        const Microbatch microbatch{
            .sequences = 1, .seq_length = run_.tokens, .loss_gradient = weights};
        // Every pass finds scratch full of NaN.
        const auto pass = [&](const auto& body) {
            const Poisoned scratch(*device_, results_.bytes.scratch);
            Views memory(scratch.bytes());
            StagePass of{.ctx = ctx_,
                         .microbatch = microbatch,
                         .recompute = run_.recompute,
                         .scratch = scratch_views(memory),
                         .weight_gradients = {.accumulate = accumulate, .with_input = !run_.split},
                         .experts = link_};
            body(of);
        };
        pass(
            [&](const StagePass& f) { block_.forward(f, rows(x), left, rows(residual), rows(y)); });
        if (run_.recompute == Recompute::selective) {
            const std::vector<std::byte> made = recomputed.copy();
            recomputed.poison();
            pass([&](const StagePass& r) { block_.recompute(r, rows(x), left); });
            // F leaves rows of other waves behind those of wave 0.
            const auto same_or_nothing = [](std::byte now, std::byte before) {
                return now == before || now == std::byte{0xff};
            };
            EXPECT_TRUE(std::ranges::equal(recomputed.copy(), made, same_or_nothing))
                << "recomputed";
        }
        if (run_.split) {
            pass([&](const StagePass& i) {
                block_.backward_input(i, rows(dy), rows(x), left, of_weight, rows(dx));
            });
            pass([&](const StagePass& w) {
                block_.backward_weight(w, rows(dy), rows(x), left, of_weight);
            });
        } else {
            pass([&](const StagePass& b) {
                block_.backward_input(b, rows(dy), rows(x), left, of_weight, rows(dx));
                block_.backward_weight(b, rows(dy), rows(x), left, of_weight);
            });
        }
        results_.x.push_back(values_of(rows(x)));
        results_.residual.push_back(values_of(rows(residual)));
        results_.dy.push_back(values_of(rows(dy)));
        results_.y.push_back(values_of(rows(y)));
        results_.dx.push_back(values_of(rows(dx)));
    }

    ExpertResults results() {
        for (const Parameter& p : held_) {
            results_.weights[p.name] = values_of(p.weight);
            if (p.gradient) results_.gradients[p.name] = values_of(p.gradient);
        }
        return std::move(results_);
    }

private:
    [[nodiscard]] std::vector<Parameter> parameters() {
        ParameterList list;
        const FeedForward block(options_of(run_, place_.ranks), list);
        std::vector<Parameter> held;
        unsigned seed = 1000;
        for (const LogicalParameter& of : list.take()) {
            std::vector<float> whole = random_values(of.rows * of.cols, ++seed, 0.25F);
            if (of.name.ends_with("gate.weight") && of.rows == run_.config.moe.experts) {
                for (const auto& [expert, added] : run_.favorites) {
                    whole[static_cast<size_t>(expert * of.cols)] += added;  // x's first column is 1
                }
            }
            const TensorShard shard = tensor_shard(
                of, of.cut == TensorCut::experts ? place_ : TeamPlace{.rank = 0, .ranks = 1});
            std::vector<float> part;
            std::vector<int64_t>& places = results_.places[of.name];
            for_each_run(shard, of.cols, [&](const ElementRun& r) {
                for (int64_t i = r.logical; i < r.logical + r.count; ++i) {
                    part.push_back(whole[static_cast<size_t>(i)]);
                    places.push_back(i);
                }
            });
            const int64_t own = shard.row_count(), cols = shard.column_count();
            const DType type = of.correction_bias ? DType::fp32 : run_.config.dtype;
            Parameter& p = held.emplace_back();
            p.name = of.name;
            p.weight = Tensor(memory(own * cols * size_of(type)), own, cols, type);
            write(p.weight, part);
            if (of.correction_bias) continue;
            p.gradient = Tensor(memory(own * cols * size_of(DType::fp32)), own, cols, DType::fp32);
        }
        return held;
    }
    std::byte* memory(int64_t bytes) {
        return memory_.emplace_back(*device_, bytes).bytes().data();
    }
    [[nodiscard]] std::vector<float> tokens(unsigned seed) const {
        const int64_t h = run_.config.hidden_size;
        std::vector<float> values = random_values(run_.tokens * h, seed, 1);
        for (int64_t n = 0; n < run_.tokens; ++n) values[static_cast<size_t>(n * h)] = 1;
        return values;
    }
    [[nodiscard]] int64_t boundary_bytes() const {
        return run_.tokens * run_.config.hidden_size * size_of(run_.config.dtype);
    }
    [[nodiscard]] Tensor rows(const Poisoned& memory) const {
        return {memory.bytes().data(), run_.tokens, run_.config.hidden_size, run_.config.dtype};
    }
    FeedForward::Saved saved_views(Views& saved, Views& recomputed) const {
        const bool apart = run_.recompute == Recompute::selective;
        SavedViews views{.costly = {saved, run_.tokens, run_.config.dtype},
                         .cheap = {apart ? recomputed : saved, run_.tokens, run_.config.dtype}};
        return block_.saved_views(views);
    }
    FeedForward::Gradients gradient_views(Views& memory) const {
        TokenViews views(memory, run_.tokens, run_.config.dtype);
        return block_.gradient_views(views);
    }
    Scratch scratch_views(Views& memory) const {
        const ScratchSize size = block_.scratch({.operators = ctx_.operators(),
                                                 .sequences = 1,
                                                 .seq_length = run_.tokens,
                                                 .dtype = run_.config.dtype});
        const int64_t columns = std::max(size.columns, size.own_columns);
        const Bytes rows = memory.take_bytes(run_.tokens * columns * size_of(run_.config.dtype));
        return {.rows = Tensor(rows.data(), run_.tokens, size.columns, run_.config.dtype),
                .workspace = memory.take_bytes(size.workspace)};
    }
    [[nodiscard]] ExpertBytes bytes() const {
        Views saved, recomputed, gradients, scratch;
        saved_views(saved, recomputed);
        gradient_views(gradients);
        scratch_views(scratch);
        return {.saved = saved.used(),
                .recomputed = recomputed.used(),
                .gradients = gradients.used(),
                .scratch = scratch.used()};
    }

    const ExpertRun& run_;
    TileLink* link_;
    TeamPlace place_;
    std::unique_ptr<Device> device_ = make_host_device();
    std::vector<Poisoned> memory_;
    Context ctx_;
    ExpertResults results_;
    std::vector<Parameter> held_;
    HeldParameters source_;
    FeedForward block_;
};

unsigned seed_of(const ExpertRun& run, int microbatch, int member) {
    return 10 * static_cast<unsigned>(microbatch * run.ranks + member);
}

}  // namespace

ExpertResults run_member(const ExpertRun& run, TileLink& link) {
    Rank rank(run, &link);
    for (int j = 0; j < kMicrobatches; ++j) {
        rank.run_microbatch(seed_of(run, j, link.rank()), j > 0);
    }
    return rank.results();
}

ExpertResults run_alone(const ExpertRun& run) {
    Rank rank(run, nullptr);
    for (int j = 0; j < kMicrobatches; ++j) {
        for (int member = 0; member < run.ranks; ++member) {
            rank.run_microbatch(seed_of(run, j, member), j + member > 0);
        }
    }
    return rank.results();
}

std::vector<ExpertResults> run_serially(const ExpertRun& run) {
    std::vector<ExpertResults> results(static_cast<size_t>(run.ranks));
    on_serial_team(run.ranks, [&](int rank, TileLink* link) {
        results[static_cast<size_t>(rank)] = run_member(run, *link);
    });
    return results;
}

std::vector<ExpertResults> run_with_links(const ExpertRun& run) {
    std::vector<ExpertResults> results(static_cast<size_t>(run.ranks));
    on_linked_team(run.ranks, [&](int rank, TileLink* link) {
        results[static_cast<size_t>(rank)] = run_member(run, *link);
    });
    return results;
}

ExpertResults put_together(const std::vector<ExpertResults>& members) {
    ExpertResults whole;
    for (size_t j = 0; j < members.front().y.size(); ++j) {
        for (const ExpertResults& member : members) {
            whole.y.push_back(member.y[j]);
            whole.dx.push_back(member.dx[j]);
        }
    }
    for (const auto& [name, of_first] : members.front().gradients) {
        const bool joined =
            name.ends_with("experts.gate_up.weight") || name.ends_with("experts.down.weight");
        std::vector<float>& gradient = whole.gradients[name];
        for (const ExpertResults& member : members) {
            const std::vector<float>& part = member.gradients.at(name);
            if (joined) {
                const std::vector<int64_t>& places = member.places.at(name);
                gradient.resize(of_first.size() * members.size(), std::nanf(""));
                for (size_t i = 0; i < part.size(); ++i) {
                    gradient.at(static_cast<size_t>(places[i])) = part[i];
                }
            } else {
                gradient.resize(part.size(), 0);
                for (size_t i = 0; i < part.size(); ++i) gradient[i] += part[i];
            }
        }
    }
    return whole;
}

}  // namespace vocabpipe::testing
