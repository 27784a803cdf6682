// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gemm_each.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <vector>

#include "kernels/host/engine.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// A product whose weights or gradients come from memory, like those of experts, is faster in
/// strips about this wide, unless b is transposed.
constexpr int64_t kWidth = 512;
/// Minimum number of tasks per thread, where products are large enough to be cut.
constexpr int kTasksPerThread = 4;

/// The unit of work that a thread computes without interruption.
struct Task {
    std::vector<Operands> parts;
    double flop = 0;
};

/// Products that gemm() does not compute as one per part of k.
bool is_special(const Operands& o) {
    const bool one_row = o.c.rows == 1 && !o.transpose_a && o.transpose_b && !o.accumulate;
    return one_row || o.k() == 0 || (o.a.dtype == DType::fp32 && o.c.dtype == DType::bf16);
}

/// Some rows of a product, cut along k where gemm() cuts sums.
Task task_of(const Operands& rows) {
    Task task{{}, rows.flop()};
    const int64_t k = rows.k(), n = rows.c.cols;
    const int64_t strips = rows.transpose_b ? 1 : (n + kWidth - 1) / kWidth;
    const int64_t terms = rows.c.dtype == DType::fp32 ? terms_per_part(k) : k;
    for (int64_t i = 0; i < strips; ++i) {
        const int64_t left = boundary(n, i, strips);
        const Operands strip = rows.columns(left, boundary(n, i + 1, strips) - left);
        for (int64_t begin = 0; begin < k; begin += terms) {
            task.parts.push_back(strip.terms(begin, std::min(terms, k - begin)));
        }
    }
    return task;
}

/// Cuts a product along rows of c into tasks of at most `flop`, as far as whole shares allow.
std::vector<Task> tasks_of(std::span<const Operands> products, double flop) {
    std::vector<Task> tasks;
    for (const Operands& product : products) {
        const int64_t rows = product.c.rows;
        const auto wanted = static_cast<int64_t>(std::ceil(product.flop() / flop));
        const int64_t cuts =
            std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, rows / kSmallestShare));
        for (int64_t i = 0; i < cuts; ++i) {
            const int64_t top = boundary(rows, i, cuts);
            tasks.push_back(task_of(product.rows(top, boundary(rows, i + 1, cuts) - top)));
        }
    }
    return tasks;
}

/// Every thread takes the next task when it finishes one. The caller's thread, which is the team's
/// first, polls between its tasks: it then has no product under way, and what poll() runs uses no
/// team.
void run(Context& ctx, const std::vector<Task>& tasks, int threads, double flop_per_poll) {
    Engine& engine = ctx.engine();
    std::atomic<size_t> next = 0;
    std::exception_ptr error;
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num();
        double since_poll = 0;
        for (size_t i = next++; i < tasks.size(); i = next++) {
            for (const Operands& o : tasks[i].parts) {
                run_matmul(engine, o.shape(), thread, o.a.data, o.b.data, o.c.data);
            }
            since_poll += tasks[i].flop;
            if (thread != 0 || since_poll < flop_per_poll) continue;
            since_poll = 0;
            try {
                ctx.poll();
            } catch (...) {  // must not leave the team
                error = std::current_exception();
                next = tasks.size();
            }
        }
    }
    if (error) std::rethrow_exception(error);
}

}  // namespace

void gemm_each(Context& ctx, std::span<const Operands> products) {
    auto& engine = ctx.engine();
    engine.bind_thread();
    std::vector<Operands> ordinary;
    double flop = 0;
    for (const Operands& o : products) {
        if (o.c.size() == 0) continue;
        if (is_special(o)) {
            ctx.poll();
            gemm(ctx, o.a, o.transpose_a, o.b, o.transpose_b, o.c, o.accumulate);
        } else {
            ordinary.push_back(o);
            flop += o.flop();
        }
    }
    if (ordinary.empty()) return;
    const auto threads = static_cast<int>(
        std::clamp<int64_t>(static_cast<int64_t>(flop / kParallelFlop), 1, ctx.threads()));
    const double per_poll = kFlopPerPart * (ordinary.front().a.dtype == DType::bf16 ? 2 : 1);
    const double per_task =
        threads == 1 ? per_poll : std::min(per_poll, flop / (kTasksPerThread * threads));
    run(ctx, tasks_of(ordinary, per_task), threads, per_poll / 2);
}

}  // namespace vocabpipe::kernels::host
