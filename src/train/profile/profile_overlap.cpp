// SPDX-License-Identifier: Apache-2.0
#include "src/train/profile/profile_overlap.hpp"

#include "src/model/check_context_parallel.hpp"
#include "src/step/rank_placement.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/profile/timed_overlap.hpp"
#include "src/train/run/run_limits.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

constexpr std::array kPieces{1, 2, 4, 8, 16};

int64_t share(int64_t whole, int members) {
    return (whole + members - 1) / members;
}

/// At least 1: the clock may not have advanced.
int64_t to_ns(double seconds) {
    return std::max<int64_t>(1, std::llround(seconds * 1e9));
}

/// The team measures what tensor or expert ranks exchange in a run that may have context ranks.
void check_team(TrainOptions options, int ranks) {
    const int context = std::exchange(options.context_parallel_size, 1);
    check_options(options, ranks);
    check_context_parallel(options.model, context, ContextForm::allgather, 1);
    if (ranks < 2) {
        throw UsageError(
            "--overlap: one rank has nobody to talk to; start at least two with mpirun -np P, or "
            "--transport threads --ranks P");
    }
    if (options.device != "host") {
        throw UsageError("--overlap: measures products of the host, not --device " +
                         options.device + "; use --device host");
    }
}

}  // namespace

std::vector<MeasuredOverlap> overlap_shapes(const TrainOptions& options, int members) {
    const ModelConfig& m = options.model;
    int64_t rows = options.micro_batch_size * m.seq_length / options.context_parallel_size;
    const int64_t h = m.hidden_size;
    std::vector<MeasuredOverlap> shapes;
    const auto add = [&](OverlapOp op, int64_t inner, int64_t columns) {
        const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const auto& other) {
            return other.op == op && other.inner == inner && other.columns == columns;
        });
        if (known) return;
        shapes.push_back({.op = op, .rows = rows, .inner = inner, .columns = columns});
    };
    for (const int64_t whole :
         {m.qkv_columns(), m.mlp_columns(), m.query_columns(), m.ffn_hidden_size}) {
        const int64_t part = share(whole, members);
        add(OverlapOp::all_gather_gemm, h, part);
        add(OverlapOp::gemm_reduce_scatter, part, h);
    }
    add(OverlapOp::stream_in, h, share(m.vocab_size, members));
    if (m.moe.experts > 0 && m.moe.experts % members == 0) {
        rows *= m.moe.top_k;  // of each member, on average
        add(OverlapOp::dispatch_gemm, h, 2 * m.expert_ffn_hidden_size());
        add(OverlapOp::gemm_combine, 2 * m.expert_ffn_hidden_size(), h);
    }
    return shapes;
}

OverlapTable profile_overlap(Communicator& communicator, const TrainOptions& options) {
    check_same_options(communicator, options);
    communicator.agree([&] { check_team(options, communicator.size()); });
    const std::vector<RankPlacement> placements = find_placements(communicator);
    OverlapTable table{.host = placements.front().host,
                       .device = placements.front().device + ", 1 thread per rank",
                       .date = options.date,
                       .command = options.command,
                       .members = communicator.size(),
                       .shapes = overlap_shapes(options, communicator.size())};
    const std::unique_ptr<Device> device = make_host_device();
    const std::unique_ptr<TileLink> link =
        link_of_all(communicator, *device, communicator.transport());
    for (MeasuredOverlap& m : table.shapes) {
        for (const int pieces : kPieces) {
            const OverlapTiming timing =
                time_overlap(communicator, *device, *link,
                             {.op = m.op,
                              .pieces = pieces,
                              .rows = m.rows,
                              .inner = m.inner,
                              .columns = m.columns,
                              .experts = options.model.moe.experts / communicator.size(),
                              .per_token = options.model.moe.top_k,
                              .rounds = static_cast<int>(options.train_iters)});
            communicator.agree([&] {
                const int signal = options.terminated ? options.terminated() : 0;
                if (signal != 0) {
                    throw Error(exit_code_of(signal),
                                name_of_signal(signal) +
                                    ": ended while overlap was measured; no table was written");
                }
                if (timing.wrong == 0) return;
                throw Error(ExitCode::failed,
                            "--overlap: " + std::to_string(timing.wrong) + " elements of " +
                                std::string(to_string(m.op)) + " in " + std::to_string(pieces) +
                                " pieces differ from the whole product; no table was written");
            });
            // Times that do not depend on pieces are measured each time: keep the fastest.
            const auto keep = [&](int64_t& ns, double seconds) {
                ns = ns == 0 ? to_ns(seconds) : std::min(ns, to_ns(seconds));
            };
            keep(m.compute_ns, timing.compute);
            keep(m.link_ns, timing.link);
            keep(m.blocking_ns, timing.blocking);
            m.candidates.push_back({.pieces = pieces, .overlapped_ns = to_ns(timing.overlapped)});
        }
        m.pieces = best_pieces(m);
    }
    table.rates = fit_rates(table);
    return table;
}

}  // namespace vocabpipe
