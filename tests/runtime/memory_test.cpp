// SPDX-License-Identifier: Apache-2.0
// A step takes its memory from the arena, the arena is as large as planned, and after the first
// steps nothing large is allocated any more: malloc() and its relatives are this program's own.
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VOCABPIPE_OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VOCABPIPE_OWN_MALLOC 0
#endif
#endif
#ifndef VOCABPIPE_OWN_MALLOC
#define VOCABPIPE_OWN_MALLOC 1
#endif

namespace {

/// From here on an allocation is large.
constexpr size_t kLarge = size_t{64} << 10;

struct Count {
    std::atomic<size_t> allocations{0};
    std::atomic<size_t> largest{0};

    void add(size_t bytes) {
        allocations.fetch_add(1);
        size_t before = largest.load();
        while (before < bytes && !largest.compare_exchange_weak(before, bytes)) {
        }
    }
    void reset() { allocations = largest = 0; }
};

std::atomic<bool> g_watching{false};
Count g_large;

[[maybe_unused]] void note(size_t bytes) {
    if (bytes >= kLarge && g_watching.load(std::memory_order_relaxed)) g_large.add(bytes);
}

}  // namespace

#if VOCABPIPE_OWN_MALLOC
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
    note(bytes);
    return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
    note(count * bytes);
    return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
    note(bytes);
    return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
    note(bytes);
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
    note(bytes);
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
    note(bytes);
    void* memory = __libc_memalign(alignment, bytes);
    if (memory == nullptr) return ENOMEM;
    *result = memory;
    return 0;
}
}
#endif

namespace vocabpipe::testing {
namespace {

class Watch {
public:
    Watch() {
        g_large.reset();
        g_watching = true;
    }
    ~Watch() { g_watching = false; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
};

TEST(OwnMalloc, SeesEveryWayToAllocate) {
    if (VOCABPIPE_OWN_MALLOC == 0) GTEST_SKIP() << "the sanitizer has its own";
    volatile size_t bytes = kLarge;  // not to be optimised away
    const Watch watch;
    std::free(std::malloc(bytes));
    std::free(std::calloc(bytes / 8, 8));
    std::free(std::realloc(nullptr, bytes));
    std::free(std::aligned_alloc(64, bytes));
    void* aligned = nullptr;
    ASSERT_EQ(posix_memalign(&aligned, 64, bytes), 0);
    std::free(aligned);
    ::operator delete(::operator new(bytes));
    ::operator delete(::operator new(bytes, std::align_val_t(64)), std::align_val_t(64));
    EXPECT_EQ(g_large.allocations, 7U);
    EXPECT_EQ(g_large.largest, kLarge);
    std::free(std::malloc(bytes - 1));
    EXPECT_EQ(g_large.allocations, 7U);
}

/// Large enough for every kind of buffer to be far above 64 KiB: 256 tokens, boundaries of 64 KiB,
/// exp_logits of 1 MiB and more.
ModelConfig model(DType dtype, bool tied) {
    ModelConfig config;
    config.num_layers = 4;
    config.hidden_size = 64;
    config.ffn_hidden_size = 256;
    config.num_attention_heads = 4;
    config.seq_length = config.max_position_embeddings = 64;
    config.vocab_size = 2050;
    config.dtype = dtype;
    config.tied = tied;
    return config;
}

struct Setting {
    std::string family;
    VocabMode mode;
    DType dtype;
    bool tied;
    int threads;
};

void PrintTo(const Setting& setting, std::ostream* out) {
    *out << setting.family << " " << to_string(setting.mode) << (setting.tied ? " tied" : "")
         << (setting.dtype == DType::bf16 ? " bf16 " : " fp32 ") << setting.threads << " threads";
}

class StepMemory : public ::testing::TestWithParam<Setting> {
protected:
    static constexpr int kRanks = 3;
    static constexpr int kMicrobatches = 5;

    void SetUp() override {
        const Setting& s = GetParam();
        config_ = model(s.dtype, s.tied);
        schedule_ = make_schedule(s.family, {.ranks = kRanks,
                                             .microbatches = kMicrobatches,
                                             .vocab_mode = s.mode,
                                             .vocab_size = config_.vocab_size});
        partition_ = even_partition(config_, schedule_, 4);
        partition_.threads_per_rank = s.threads;
        partition_.optimizer = true;
        // From the configuration alone: no model, no world, no tensor.
        TableCosts costs = TableCosts::uniform(kRanks, kRanks, 1000, 2000, 500);
        costs.latency_ns = 10;
        plan_ = plan_step(config_, partition_, schedule_, costs);
    }

    /// Calls `between` on every rank before each step, once all ranks are there.
    template <typename Between, typename After>
    void run(int steps, const Between& between, const After& after) {
        World world = World::threads(kRanks, {.timeout_seconds = 30});
        const Batch batch = random_batch(config_, kMicrobatches, 4, 1);
        world.run([&](Communicator& communicator) {
            const std::unique_ptr<Device> device = make_host_device();
            TrainedRank rank(communicator, *device, plan_, {.seed = 7});
            const std::vector<Microbatch> microbatches = batch.microbatches();
            for (int step = 0; step < steps; ++step) {
                communicator.barrier();
                if (communicator.rank() == 0) between(step);
                communicator.barrier();
                rank.train_step(microbatches, batch.counted_tokens, 1e-3);
            }
            communicator.barrier();
            const std::lock_guard lock(mutex_);
            after(communicator.rank(), rank);
        });
    }

    ModelConfig config_;
    Schedule schedule_;
    ModelPartition partition_;
    StepPlan plan_;
    std::mutex mutex_;
};

TEST_P(StepMemory, HasNoLargeAllocationAfterTheFirstTwoSteps) {
    if (VOCABPIPE_OWN_MALLOC == 0) GTEST_SKIP() << "the sanitizer has its own";
    std::unique_ptr<Watch> watch;
    run(
        6,
        [&](int step) {
            if (step == 2) watch = std::make_unique<Watch>();
        },
        [&](int /*rank*/, TrainedRank& trained) {
            EXPECT_EQ(g_large.allocations, 0U) << "the largest has " << g_large.largest << " bytes";
            EXPECT_TRUE(trained.report().updated);  // the optimizer was in it
        });
}

TEST_P(StepMemory, TakesAnArenaOfThePlannedSizeAndNotMore) {
    run(
        1, [](int) {},
        [&](int rank, TrainedRank& trained) {
            const Program program = plan_.lowered.of(rank);
            EXPECT_EQ(trained.executor().arena_bytes(), program.arena_bytes);
            // And that figure is of the size that the model's largest tensors ask for.
            const int64_t n = plan_.sizes.tokens;
            const int64_t rows = schedule_.output.rows(rank);
            EXPECT_GT(program.arena_bytes,
                      static_cast<uint64_t>(n * rows * size_of(config_.dtype)));
        });
}

TEST_P(StepMemory, NeverHasTwoBuffersAliveInOnePlaceByTheClock) {
    run(
        2, [](int) {},
        [&](int rank, TrainedRank& trained) {
            // Alive from the begin of the first to the end of the last span that uses it.
            const Program program = plan_.lowered.of(rank);
            std::vector<int64_t> born(program.buffers.size(), INT64_MAX);
            std::vector<int64_t> dead(program.buffers.size(), INT64_MIN);
            for (const Span& span : trained.executor().timeline().spans) {
                for (const uint32_t b : program.operands_of(program.actions[span.action])) {
                    if (b == kNoBuffer) continue;
                    born[b] = std::min(born[b], span.begin_ns);
                    dead[b] = std::max(dead[b], span.end_ns);
                }
            }
            for (size_t a = 0; a < born.size(); ++a) {
                const Buffer& x = program.buffers[a];
                for (size_t b = a + 1; b < born.size(); ++b) {
                    const Buffer& y = program.buffers[b];
                    if (x.space != Buffer::Space::arena || y.space != x.space) continue;
                    const bool apart_in_time = dead[a] <= born[b] || dead[b] <= born[a];
                    const bool apart_in_place =
                        x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset;
                    ASSERT_TRUE(apart_in_time || apart_in_place) << a << " and " << b;
                }
            }
        });
}

std::vector<Setting> settings() {
    std::vector<Setting> all;
    for (const VocabMode mode : {VocabMode::none, VocabMode::interlaced, VocabMode::one_barrier,
                                 VocabMode::two_barriers}) {
        all.push_back({"1f1b", mode, DType::fp32, false, 1});
        all.push_back({"1f1b", mode, DType::bf16, true, 1});
    }
    all.push_back({"gpipe", VocabMode::one_barrier, DType::fp32, true, 1});
#ifndef __SANITIZE_THREAD__  // it does not know libgomp's barriers
    all.push_back({"1f1b", VocabMode::one_barrier, DType::fp32, false, 2});
#endif
    return all;
}

INSTANTIATE_TEST_SUITE_P(, StepMemory, ::testing::ValuesIn(settings()), [](const auto& info) {
    const Setting& s = info.param;
    return (s.family == "1f1b" ? "one_f_one_b_" : s.family + "_") + std::string(to_string(s.mode)) +
           (s.dtype == DType::bf16 ? "_bf16" : "_fp32") + (s.tied ? "_tied" : "") + "_threads" +
           std::to_string(s.threads);
});

}  // namespace
}  // namespace vocabpipe::testing
