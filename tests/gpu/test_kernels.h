// SPDX-License-Identifier: Apache-2.0
// Kernels that a real GPU runs for tests.
#ifndef TESTS_GPU_TEST_KERNELS_H_
#define TESTS_GPU_TEST_KERNELS_H_

namespace millrace::testing {

// PTX of "bad_address", "trap", and "spin", which takes nanoseconds as its parameter.
inline constexpr char kTestKernelsPtx[] = R"(.version 6.3
.target sm_75
.address_size 64
.visible .entry bad_address()
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry trap_now()
{
  trap;
  ret;
}
.visible .entry spin(.param .u64 nanoseconds)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [nanoseconds];
  mov.u64 %rd2, %globaltimer;
  add.u64 %rd3, %rd2, %rd1;
again:
  mov.u64 %rd4, %globaltimer;
  setp.lt.u64 %p1, %rd4, %rd3;
  @%p1 bra again;
  ret;
}
)";

}  // namespace millrace::testing

#endif  // TESTS_GPU_TEST_KERNELS_H_
