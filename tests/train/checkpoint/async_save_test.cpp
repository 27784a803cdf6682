// SPDX-License-Identifier: Apache-2.0
// Steps that are written beside those that follow, and writing that fails on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "src/model/parameters.hpp"
#include "src/runtime/device/forwarding_device.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/file_size_limit.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The host, with something that happens before tensors are copied from it.
class HookedDevice : public ForwardingDevice {
public:
    explicit HookedDevice(std::function<void()> before_download)
        : ForwardingDevice(make_host_device()), before_download_(std::move(before_download)) {}
    void download(const std::byte* from, std::span<std::byte> to) override {
        if (to.size() >= 128) before_download_();  // less is a step's result
        ForwardingDevice::download(from, to);
    }

private:
    std::function<void()> before_download_;
};

/// The host, which has no memory for the snapshot of a rank.
class CrowdedDevice final : public HookedDevice {
public:
    CrowdedDevice() : HookedDevice([] {}) {}
    [[nodiscard]] DeviceMemory allocate_staging(uint64_t bytes) override {
        throw OutOfMemoryError(std::to_string(bytes) + " bytes are not there");
    }
};

uint64_t parameters_of(const ModelConfig& config) {
    uint64_t count = 0;
    for (const LogicalParameter& p : logical_parameters(config)) {
        count += static_cast<uint64_t>(p.rows * p.cols);
    }
    return count;
}

class AsyncSave : public ::testing::Test {
protected:
    [[nodiscard]] TrainOptions options(const std::string& save, bool async = true) const {
        TrainOptions options = runs_.options();
        options.save = runs_.path(save);
        options.save_interval = 2;
        options.async_save = async;
        return options;
    }
    /// What every rank of the run throws; the same.
    [[nodiscard]] std::string failure(int ranks, const TrainOptions& options, ExitCode code) const {
        std::mutex mutex;
        std::vector<std::string> errors;
        EXPECT_THROW(
            World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& communicator) {
                try {
                    train(communicator, options);
                } catch (const AgreedError& error) {
                    EXPECT_EQ(error.exit_code(), code);
                    const std::lock_guard lock(mutex);
                    errors.emplace_back(error.what());
                    throw;
                }
            }),
            AgreedError);
        EXPECT_EQ(errors.size(), static_cast<size_t>(ranks));
        for (const std::string& error : errors) EXPECT_EQ(error, errors.front());
        return errors.empty() ? std::string() : errors.front();
    }
    /// Complete steps, each with all checksums right, and nothing else.
    void expect_nothing_but_complete_steps(const std::string& save,
                                           const std::set<std::string>& names) const {
        std::set<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(runs_.path(save))) {
            found.insert(entry.path().filename());
        }
        EXPECT_EQ(found, names);
        for (const SavedStep& step : complete_steps(runs_.path(save))) {
            Checkpoint(find_checkpoint(step.folder, false)).verify();
        }
    }

    CheckpointRun runs_;
};

TEST_F(AsyncSave, WritesTheBytesOfASynchronousSaveAndChangesNoStep) {
    for (const int ranks : {1, 3}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            for (const bool tied : {true, false}) {
                const auto run = [&](const char* save, bool async) {
                    std::filesystem::remove_all(runs_.path(save));
                    TrainOptions o = options(save, async);
                    o.model.dtype = dtype;
                    o.model.tied = tied;
                    return runs_.run(ranks, o);
                };
                EXPECT_EQ(run("async", true), run("sync", false));
                const auto files = contents(runs_.path("sync"));
                EXPECT_EQ(files.size(), 3U * 5) << "three steps of four files";
                EXPECT_TRUE(contents(runs_.path("async")) == files);
            }
        }
    }
}

TEST_F(AsyncSave, KeepsASnapshotOfExactlyWhatIsStoredAndPlansIt) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            for (const bool tied : {true, false}) {
                TrainOptions o = options("plan");
                o.vocab_mode = mode;
                o.model.dtype = dtype;
                o.model.tied = tied;
                std::atomic<uint64_t> total{0};
                World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
                    const int rank = communicator.rank();
                    const TrainingPlan plan(o, find_placements(communicator));
                    const auto device = make_host_device();
                    ModelRank model(o.model, plan.partition(), plan.schedule(), rank, *device);
                    const CheckpointSaver saver(communicator, model, nullptr, {.async = true});
                    EXPECT_EQ(static_cast<int64_t>(saver.snapshot_bytes()),
                              snapshot_bytes(plan, rank));
                    TrainOptions synchronous = o;
                    synchronous.async_save = false;
                    const TrainingPlan without(synchronous, find_placements(communicator));
                    EXPECT_EQ(planned_bytes(plan, rank),
                              planned_bytes(without, rank) + snapshot_bytes(plan, rank));
                    total += saver.snapshot_bytes();
                });
                const auto parameters = parameters_of(o.model);
                EXPECT_EQ(total, parameters * (dtype == DType::fp32 ? 12 : 14));
            }
        }
    }
    TrainOptions o = options("report");
    o.report = runs_.path("report.json");
    ::testing::internal::CaptureStdout();
    (void)runs_.run(2, o);
    EXPECT_THAT(::testing::internal::GetCapturedStdout(),
                AllOf(HasSubstr("copies for --async-save, in host memory and in the plan: rank 0 "),
                      HasSubstr(" in the background, copied in ")));
    const auto report = nlohmann::json::parse(read_file(o.report));
    for (const auto& rank : report.at("ranks")) {
        EXPECT_GT(rank.at("snapshot_bytes").get<int64_t>(), 0);
    }
}

TEST_F(AsyncSave, ThatFollowsUponAnotherWaitsForItAndSaysSoAtMostOnce) {
    TrainOptions o = options("often");
    o.save_interval = 1;
    o.save_total_limit = 2;
    ::testing::internal::CaptureStdout();
    (void)runs_.run(2, o);
    const std::string output = ::testing::internal::GetCapturedStdout();
    const std::string line = "waits for the previous save";
    const size_t first = output.find(line);  // whether rows are written within a step, time decides
    if (first != std::string::npos) {
        EXPECT_EQ(output.find(line, first + 1), std::string::npos);
    }
    expect_nothing_but_complete_steps("often", {"step-00000005", "step-00000006"});
}

TEST_F(AsyncSave, IsSaidToBeWritingUntilAllRowsAreDurableAndNotWhileItGetsItsName) {
    const TrainOptions o = options("writing");
    SaveFolder folder(o.save, 0, "");
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const TrainingPlan plan(o, find_placements(communicator));
        const auto device = make_host_device();
        ModelRank model(o.model, plan.partition(), plan.schedule(), communicator.rank(), *device);
        CheckpointSaver saver(communicator, model, communicator.rank() == 0 ? &folder : nullptr,
                              {.root = o.save, .async = true});
        EXPECT_FALSE(saver.writing());
        saver.begin({.step = 1, .dtype = "fp32"});
        EXPECT_TRUE(saver.writing());
        while (saver.writing()) EXPECT_FALSE(saver.poll());
        EXPECT_TRUE(saver.pending()) << "the next poll asks whether it has its name";
        EXPECT_TRUE(saver.finish());
    });
}

TEST_F(AsyncSave, WithoutMemoryForItsCopyLeavesTheMetricsFileAsItWas) {
    TrainOptions o = options("crowded");
    o.metrics = runs_.path("metrics");
    const std::string older = "{\"loss\":1,\"step\":1,\"step_seconds\":1}\n";
    write_file(o.metrics, older);
    o.make_device = [](const RankPlacement& place) -> std::unique_ptr<Device> {
        if (place.local_rank == 0) return make_host_device();
        return std::make_unique<CrowdedDevice>();
    };
    EXPECT_THAT(failure(2, o, ExitCode::out_of_memory),
                HasSubstr("--async-save: no memory for a copy of "));
    EXPECT_EQ(read_file(o.metrics), older);
}

/// A disk or a device that is slow for one rank: the others must not take it for lost.
TEST_F(AsyncSave, OrNotOutlivesTheDeadlineOfTheOtherRanks) {
    TrainOptions o = options("slow", false);
    o.train_iters = 2;
    std::atomic<bool> slept{false};
    o.make_device = [&](const RankPlacement& place) -> std::unique_ptr<Device> {
        if (place.local_rank == 0) return make_host_device();
        return std::make_unique<HookedDevice>([&] {
            if (!slept.exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        });
    };
    World::threads(2, {.timeout_seconds = 1.5}).run([&](Communicator& communicator) {
        train(communicator, o);
    });
    EXPECT_TRUE(slept);
    expect_nothing_but_complete_steps("slow", {"step-00000002"});
}

TEST_F(AsyncSave, IsCompleteWhenARunIsStopped) {
    TrainOptions o = options("stopped");
    o.save_interval = 0;
    std::atomic<int> asked{0};
    o.stop_requested = [&] { return ++asked > 5; };  // two ranks ask once a step
    EXPECT_LE(runs_.run(2, o).size(), 4U);
    EXPECT_EQ(complete_steps(o.save).size(), 1U);
    for (const auto& [name, text] : contents(o.save)) EXPECT_THAT(name, Not(HasSubstr("partial")));
}

TEST_F(AsyncSave, LeavesNothingHalfWrittenWhereARunFailsMeanwhile) {
    for (const bool async : {false, true}) {
        const char* save = async ? "fails-async" : "fails-sync";
        TrainOptions o = options(save, async);
        std::atomic<int> asked{0};
        o.stop_requested = [&]() -> bool {
            if (++asked > 6) throw InputFileError("of the data");  // in the step after the fourth
            return false;
        };
        o.train_iters = 6;
        o.save_interval = 3;
        EXPECT_THROW((void)runs_.run(2, o), Error);
        // Whether the third step was complete before, time decides.
        for (const auto& [name, text] : contents(o.save)) {
            EXPECT_THAT(name, Not(HasSubstr("partial")));
        }
        for (const SavedStep& step : complete_steps(o.save)) {
            Checkpoint(find_checkpoint(step.folder, false)).verify();
        }
    }
}

TEST_F(AsyncSave, ThatOneRankCannotReadEndsAllAlikeAndLeavesTheStepsBefore) {
    for (const bool async : {false, true}) {
        for (const int victim : {0, 1, 2}) {
            const std::string save = "unread-" + std::to_string(victim) + (async ? "a" : "s");
            TrainOptions o = options(save, async);
            o.make_device = [&](const RankPlacement& place) -> std::unique_ptr<Device> {
                if (place.local_rank != victim) return make_host_device();
                // Some tensors into the second save, in the middle of what is written.
                return std::make_unique<HookedDevice>([downloads = 0, async]() mutable {
                    if (++downloads == (async ? 40 : 50)) throw DeviceError("the device is lost");
                });
            };
            EXPECT_EQ(failure(3, o, ExitCode::device), "the device is lost");
            const auto steps = complete_steps(o.save);
            std::set<std::string> names;
            for (const SavedStep& s : steps) {
                names.insert(std::filesystem::path(s.folder).filename());
            }
            expect_nothing_but_complete_steps(save, names);
            EXPECT_LT(steps.size(), 3U);
        }
    }
}

TEST_F(AsyncSave, ThatCannotBeWrittenIsAnAgreedErrorWithTheFile) {
    for (const bool async : {false, true}) {
        const char* save = async ? "full-async" : "full-sync";
        TrainOptions o = options(save, async);
        std::optional<FileSizeLimit> limit;
        std::atomic<int> downloads{0};
        o.make_device = [&](const RankPlacement& place) -> std::unique_ptr<Device> {
            if (place.local_rank != 1) return make_host_device();
            return std::make_unique<HookedDevice>([&] {
                // The files of the first save are there: what follows does not fit any more.
                if (++downloads == 1) limit.emplace(8192);
            });
        };
        EXPECT_THAT(failure(2, o, ExitCode::failed),
                    AllOf(HasSubstr(".safetensors: cannot write: File too large"),
                          HasSubstr(".step-00000002.partial/")));
        limit.reset();
        expect_nothing_but_complete_steps(save, {});
    }
}

}  // namespace
}  // namespace vocabpipe::testing
