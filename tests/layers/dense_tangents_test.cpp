// Tangents carried through a dense network by hand-written derivatives, against plain tensor operations.
#include "diffeo/layers/nets/dense_tangents.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/base/options.h"

namespace diffeo::testing {
namespace {

struct Net {
  dense::Shape shape;
  std::vector<Tensor> parameters;
};

Net net_of(bool residual, int64_t depth, const std::string& activation, torch::Dtype dtype) {
  constexpr int64_t inputs = 5, width = 7, outputs = 3;
  Net net{{.residual = residual, .depth = depth, .activation = activation}, {}};
  const auto add = [&](int64_t from, int64_t to) {
    net.parameters.push_back((torch::randn({to, from}, dtype) / std::sqrt(static_cast<double>(from))).requires_grad_());
    net.parameters.push_back(torch::randn({to}, dtype).requires_grad_());
  };
  if (residual) {
    add(inputs, width);
    for (int64_t i = 0; i < 2 * depth; ++i) add(width, width);
    add(width, outputs);
  } else {
    for (int64_t i = 0; i < depth; ++i) add(i == 0 ? inputs : width, width);
    add(depth == 0 ? inputs : width, outputs);
  }
  return net;
}

Tensor weighed(const dense::Carried& carried) {
  return (carried.value.sin() * carried.value).sum() + carried.tangents.square().sum();
}

TEST(DenseTangents, ValueTangentsAndGradientsAreThoseOfTheReference) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const bool residual : {false, true})
      for (const int64_t depth : {0, 1, 3})
        for (const char* activation : {"silu", "tanh", "softplus"})
          for (const int64_t count : {1, 4}) {
            SCOPED_TRACE(c10::str(dtype, residual ? " residual " : " mlp ", depth, " ", activation, " ", count));
            torch::manual_seed(1);
            const auto net = net_of(residual, depth, activation, dtype);
            const auto x = torch::randn({2, 6, 5}, dtype).requires_grad_();
            const auto v = torch::randn({count, 2, 6, 5}, dtype).requires_grad_();
            const auto got = dense::carry(net.shape, x, v, net.parameters);
            const auto want = dense::carry_reference(net.shape, x, v, net.parameters);
            const double near = dtype == torch::kFloat64 ? 1e-11 : 2e-4;
            EXPECT_TRUE(torch::allclose(got.value, want.value, near, near));
            EXPECT_TRUE(torch::allclose(got.tangents, want.tangents, near, near));
            auto inputs = net.parameters;
            inputs.push_back(x);
            inputs.push_back(v);
            const auto by_got = torch::autograd::grad({weighed(got)}, inputs);
            const auto by_want = torch::autograd::grad({weighed(want)}, inputs, {}, {}, false, true);
            for (size_t i = 0; i < inputs.size(); ++i)
              EXPECT_TRUE(torch::allclose(by_got[i], by_want[i].defined() ? by_want[i] : torch::zeros_like(inputs[i]),
                                          10 * near, 10 * near))
                  << "input " << i << "\n"
                  << by_got[i] << by_want[i];
          }
}

TEST(DenseTangents, TangentsAreTheJacobianOfTheNetwork) {
  torch::manual_seed(2);
  const auto net = net_of(true, 2, "silu", torch::kFloat64);
  const auto x = torch::randn({5}, torch::kFloat64).requires_grad_();
  const auto value = dense::apply(net.shape, x.unsqueeze(0), {}, net.parameters)[0];
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < 3; ++i) rows.push_back(torch::autograd::grad({value[i]}, {x}, {}, true)[0]);
  torch::NoGradGuard no_grad;
  const auto carried = dense::carry(net.shape, x, torch::eye(5, torch::kFloat64), net.parameters);
  EXPECT_TRUE(torch::allclose(carried.value, value, 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(carried.tangents.t(), torch::stack(rows), 1e-11, 1e-11));
}

TEST(DenseTangents, SecondDerivativesAgreeWithTheReference) {
  torch::manual_seed(3);
  const auto net = net_of(true, 1, "silu", torch::kFloat64);
  const auto x = torch::randn({4, 5}, torch::kFloat64).requires_grad_();
  const auto v = torch::randn({2, 4, 5}, torch::kFloat64);
  const auto second = [&](const dense::Carried& carried) {
    const auto first = torch::autograd::grad({weighed(carried)}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, net.parameters, {}, {}, false, true);
  };
  const auto got = second(dense::carry(net.shape, x, v, net.parameters));
  const auto want = second(dense::carry_reference(net.shape, x, v, net.parameters));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined());
    if (got[i].defined()) EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-9, 1e-9)) << i;
  }
}

TEST(DenseTangents, AnActivationWithoutASecondDerivativeIsRefused) {
  EXPECT_THROW(dense::check_smooth("relu"), SpecError);
  EXPECT_NO_THROW(dense::check_smooth("silu"));
}

}  // namespace
}  // namespace diffeo::testing
