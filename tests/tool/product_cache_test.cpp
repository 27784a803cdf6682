// SPDX-License-Identifier: Apache-2.0
// Timed products from run to run, on the stand-in toolkit.
#include "src/tool/train/product_cache.hpp"

#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu_bench.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "kernels/cuda/product_shape.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::tool {
namespace {

using kernels::cuda::ProductChoices;
using kernels::cuda::ProductShape;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::TempFolder;
using testing::write_file;

/// An environment variable as it was, afterwards.
class Variable {
public:
    Variable(const char* name, const std::string& value) : name_(name) {
        if (const char* const before = std::getenv(name)) before_ = before;
        ::setenv(name, value.c_str(), 1);
    }
    ~Variable() {
        if (before_) {
            ::setenv(name_, before_->c_str(), 1);
        } else {
            ::unsetenv(name_);
        }
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

class ProductCaches : public ::testing::Test {
protected:
    ProductCache cache(const std::string& gpu = "A GPU/1") {
        return {gpu, [this](const std::string& line) { notes_.push_back(line); }};
    }

    /// A run with products of `sizes`, and what it finds in the cache and times.
    ProductCache::Completed run(const std::vector<int64_t>& sizes) {
        bench::Gpu gpu;
        for (const int64_t n : sizes) {
            const bench::Matrix a(n, 16, DType::fp32);
            const bench::Matrix b(16, 8, DType::fp32);
            const bench::Matrix c(n, 8, DType::fp32);
            kernels::cuda::gemm(gpu.context(), a, false, b, false, c, false);
            kernels::cuda::check(cudaStreamSynchronize(gpu.stream()), "cudaStreamSynchronize");
        }
        const ProductCache used = cache();
        const uint64_t before = cuda_stand_in::counters().matmuls;
        auto completed = used.complete(gpu.context(), used.read());
        matmuls_ = cuda_stand_in::counters().matmuls - before;
        return completed;
    }

    static ProductShape shape(int64_t rows) { return {.m = rows, .n = 1, .k = 1}; }
    static ProductChoices choice(int64_t rows, uint64_t word) {
        ProductChoices choices("A GPU/1");
        cublasLtMatmulAlgo_t algorithm{};
        algorithm.data[0] = word;
        choices.set(shape(rows), algorithm);
        return choices;
    }

    TempFolder folder_;
    Variable home_{"HOME", folder_ / "home"};
    Variable xdg_{"XDG_CACHE_HOME", folder_ / "cache"};
    std::string name_ =
        "vocabpipe/products-A-GPU-1-cublasLt-" + std::to_string(cublasLtGetVersion()) + ".txt";
    std::vector<std::string> notes_;
    uint64_t matmuls_ = 0;  ///< that the last run() has timed
};

TEST_F(ProductCaches, LiesInTheUsersCacheFolder) {
    EXPECT_EQ(cache().path(), folder_ / "cache/" + name_);
    for (const char* of_no_use : {"", "relative"}) {
        const Variable xdg("XDG_CACHE_HOME", of_no_use);
        EXPECT_EQ(cache().path(), folder_ / "home/.cache/" + name_);
    }
}

TEST_F(ProductCaches, WhatIsTimedOnceIsNeverTimedAgain) {
    const auto first = run({8, 24});
    EXPECT_EQ(first.line(), "products: 0 shapes from " + cache().path() + ", 2 timed now");
    EXPECT_EQ(first.choices.text(), read_file(cache().path()));
    EXPECT_GT(matmuls_, 0U);

    const auto second = run({8, 24});
    EXPECT_EQ(second.line(), "products: 2 shapes from " + cache().path() + ", 0 timed now");
    EXPECT_EQ(matmuls_, 0U);
    EXPECT_EQ(second.choices.text(), first.choices.text());

    const auto third = run({40, 24});
    EXPECT_EQ(third.line(), "products: 1 shapes from " + cache().path() + ", 1 timed now");
    EXPECT_EQ(third.choices.size(), 3U);
    EXPECT_EQ(third.choices.text(), read_file(cache().path()));
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(ProductCaches, ShapesThatAreThereKeepTheirAlgorithms) {
    (void)cache().add(choice(1, 7));
    ProductChoices more = choice(1, 8);
    more.add_missing(choice(2, 9));
    const ProductChoices now = cache().add(more);
    EXPECT_EQ(now.find(shape(1))->data[0], 7U);
    EXPECT_EQ(now.find(shape(2))->data[0], 9U);
    EXPECT_EQ(cache().read().text(), now.text());
}

TEST_F(ProductCaches, OfAnotherGpuOrLibraryOrDamagedItIsIgnoredWithALine) {
    (void)cache().add(choice(1, 7));
    const std::string path = cache().path();
    const std::string good = read_file(path);
    std::string other_gpu = good;
    other_gpu.replace(other_gpu.find("A GPU/1"), 7, "Another");
    std::string other_library = good;
    other_library.replace(other_library.find("cuBLASLt "), 10, "cuBLASLt 9");
    for (const auto& [text, why] : {std::pair(other_gpu, "the GPU is 'Another'"),
                                    std::pair(other_library, "the library is 'cuBLASLt 9"),
                                    std::pair(good.substr(0, good.size() - 1), "not complete"),
                                    std::pair(good + "1 2: 3\n", "is no shape with"),
                                    std::pair(std::string(), "the first line is ''")}) {
        SCOPED_TRACE(why);
        write_file(path, text);
        notes_.clear();
        const auto completed = run({8});
        EXPECT_EQ(completed.known, 0U);
        EXPECT_EQ(completed.timed, 1U);
        EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("products: " + path + ": "), HasSubstr(why),
                                              EndsWith("; it is ignored until it is removed"))));
        EXPECT_EQ(read_file(path), text) << "whatever it is, it was not asked for";
    }
}

TEST_F(ProductCaches, WithoutAFolderThatCanBeWrittenRunsTimeForThemselves) {
    write_file(folder_ / "cache", "in the way");
    const auto completed = run({8});
    EXPECT_EQ(completed.timed, 1U);
    EXPECT_EQ(completed.choices.size(), 1U);
    EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("products: the cache folder "),
                                          EndsWith("; what was timed is not kept"))));
    const Variable xdg("XDG_CACHE_HOME", "");
    const Variable home("HOME", "");
    notes_.clear();
    EXPECT_EQ(run({8}).line(), "products: 0 shapes from no file, 1 timed now");
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("neither XDG_CACHE_HOME nor HOME")));
}

TEST_F(ProductCaches, ProcessesThatAddAtOnceLoseNothing) {
    constexpr int kProcesses = 4;
    constexpr int kShapes = 15;
    std::vector<pid_t> children;
    for (int process = 0; process < kProcesses; ++process) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            ::alarm(40);  // the parent waits
            for (int i = 0; i < kShapes; ++i) {
                (void)cache().add(choice(1 + process * kShapes + i, 5));
            }
            ::_exit(notes_.empty() ? 0 : 1);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(cache().read().size(), size_t{kProcesses * kShapes});
    EXPECT_THAT(notes_, IsEmpty());
}

}  // namespace
}  // namespace vocabpipe::tool
