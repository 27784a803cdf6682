// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which multiprocessors the kernels of libraries keep to themselves.
namespace cuda_stand_in {

/// The multiprocessors of each device; control.hpp sets it.
[[nodiscard]] int multiprocessors();

/// A kernel that stays on `count` multiprocessors of a device for as long as this lives, as NCCL's
/// do, which wait for other ranks there.
class HeldMultiprocessors {
public:
    HeldMultiprocessors(int device, int count);
    ~HeldMultiprocessors();
    HeldMultiprocessors(const HeldMultiprocessors&) = delete;
    HeldMultiprocessors& operator=(const HeldMultiprocessors&) = delete;

private:
    int device_;
    int count_;
};

[[nodiscard]] int held_multiprocessors(int device);

}  // namespace cuda_stand_in
