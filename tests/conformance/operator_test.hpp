// SPDX-License-Identifier: Apache-2.0
// What the conformance tests share: a fixture with an open device, and matrices and arrays on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reference/operators.hpp"
#include "tests/conformance/test_device.hpp"
#include "tests/kernels/activations.hpp"
#include "tests/kernels/matrix.hpp"
#include "tests/kernels/sums.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {

/// A Matrix on the device: the same elements, the same distance between rows, the same poison.
class Uploaded {
public:
    Uploaded(TestDevice& device, const Matrix& from)
        : device_(&device), shape_(from), memory_(device.allocate(bytes())) {
        device.upload({static_cast<const std::byte*>(shape_.data), bytes()}, memory_.get());
        shape_.data = memory_.get();
    }
    operator Tensor() const {
        return {memory_.get(), shape_.rows, shape_.cols, shape_.stride, shape_.dtype};
    }
    operator ConstTensor() const { return shape_; }
    [[nodiscard]] Tensor view() const { return *this; }
    /// Once everything launched so far is done.
    [[nodiscard]] Matrix download() const {
        Matrix result(shape_.rows, shape_.cols, shape_.dtype, shape_.stride - shape_.cols);
        device_->download(memory_.get(), {static_cast<std::byte*>(result.view().data), bytes()});
        return result;
    }

private:
    [[nodiscard]] size_t bytes() const {
        return static_cast<size_t>(shape_.rows * shape_.stride * size_of(shape_.dtype));
    }
    TestDevice* device_;
    ConstTensor shape_;
    std::shared_ptr<std::byte> memory_;
};

/// An array on the device: ids, labels, weights, numbers of a step.
template <typename T>
class UploadedArray {
public:
    UploadedArray(TestDevice& device, const std::vector<T>& from)
        : device_(&device), count_(from.size()), memory_(device.allocate(count_ * sizeof(T))) {
        device.upload(std::as_bytes(std::span(from)), memory_.get());
    }
    [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.get()); }
    [[nodiscard]] std::span<T> span() const { return {data(), count_}; }
    operator std::span<T>() const { return span(); }
    operator std::span<const T>() const { return span(); }
    [[nodiscard]] std::vector<T> download() const {
        std::vector<T> result(count_);
        device_->download(memory_.get(), std::as_writable_bytes(std::span(result)));
        return result;
    }

private:
    TestDevice* device_;
    size_t count_;
    std::shared_ptr<std::byte> memory_;
};

/// Poisoned memory for an operator.
class Workspace {
public:
    Workspace(TestDevice& device, int64_t bytes)
        : size_(static_cast<size_t>(bytes)), memory_(device.allocate(size_)) {}
    operator std::span<std::byte>() const { return {memory_.get(), size_}; }

private:
    size_t size_;
    std::shared_ptr<std::byte> memory_;
};

/// Opens the device of the parameter, which is a tuple (DeviceUnderTest, ...).
template <typename... Others>
class OperatorTest : public testing::TestWithParam<std::tuple<DeviceUnderTest, Others...>> {
protected:
    void SetUp() override {
        const DeviceUnderTest& chosen = std::get<0>(this->GetParam());
        if (const std::string reason = chosen.why_not(); !reason.empty()) GTEST_SKIP() << reason;
        device_ = chosen.open();
    }
    template <size_t index>
    [[nodiscard]] const auto& parameter() const {
        return std::get<index>(this->GetParam());
    }
    [[nodiscard]] TestDevice& device() const { return *device_; }
    [[nodiscard]] const Operators& ops() const { return device_->operators(); }
    [[nodiscard]] Context& ctx() const { return device_->context(); }

    [[nodiscard]] Uploaded up(const Matrix& matrix) const { return {*device_, matrix}; }
    template <typename T>
    [[nodiscard]] UploadedArray<T> up(const std::vector<T>& values) const {
        return {*device_, values};
    }
    /// An output.
    [[nodiscard]] Uploaded poison(int64_t rows, int64_t cols, DType type, int64_t gap = 3) const {
        return {*device_, Matrix(rows, cols, type, gap)};
    }

    /// What make(ctx) returns; it has the same bits with any number of threads.
    template <typename Make>
    [[nodiscard]] Matrix with_any_threads(const Make& make) const {
        const Matrix usual = make(ctx());
        for (Context* other : device_->threads()) {
            if (other == &ctx()) continue;
            EXPECT_TRUE(make(*other).same_bits(usual)) << other->threads() << " threads";
        }
        return usual;
    }

    /// The same of several results; make() is not called where there are no threads.
    template <typename Make>
    void expect_same_bits_with_any_threads(const Make& make) const {
        if (device_->threads().size() == 1) return;
        const std::vector<Matrix> usual = make(ctx());
        for (Context* other : device_->threads()) {
            if (other == &ctx()) continue;
            const std::vector<Matrix> found = make(*other);
            for (size_t i = 0; i < usual.size(); ++i) {
                EXPECT_TRUE(found[i].same_bits(usual[i]))
                    << "result " << i << ", " << other->threads() << " threads";
            }
        }
    }

    mutable Context host{{.threads = 1, .poll = {}}};  ///< for the reference

private:
    std::unique_ptr<TestDevice> device_;
};

/// For operators of which `type` says all.
class TypedOperatorTest : public OperatorTest<DType> {
protected:
    [[nodiscard]] DType type() const { return parameter<1>(); }
};

/// What a sum in fp32 is added to; without `accumulate` it must not be read.
[[nodiscard]] inline Matrix start_of_sum(int64_t rows, int64_t cols, bool accumulate, unsigned seed,
                                         int64_t gap = 3) {
    return accumulate ? random_with_gap(rows, cols, DType::fp32, gap, seed)
                      : Matrix(rows, cols, DType::fp32, gap);
}

/// Without the reference: for what it does not promise.
[[nodiscard]] inline std::vector<DeviceUnderTest> product_devices() {
    auto devices = devices_under_test();
    std::erase_if(devices, [](const DeviceUnderTest& device) { return device.reference; });
    return devices;
}

inline const auto kTypes = testing::Values(DType::fp32, DType::bf16);

inline std::string name_of(const DeviceUnderTest& device) {
    return device.name;
}

/// DEVICE_TYPE_...: what name_of() says of every part of a parameter.
inline constexpr auto kNames = [](const auto& info) {
    return std::apply(
        [](const auto& first, const auto&... others) {
            std::string name = name_of(first);
            ((name += "_", name += name_of(others)), ...);
            return name;
        },
        info.param);
};

}  // namespace vocabpipe::kernels::test
