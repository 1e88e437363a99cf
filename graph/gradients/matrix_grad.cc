// SPDX-License-Identifier: Apache-2.0
// Derivatives of batches of matrices: products, what is cut out of them, solutions.
#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

bool Flag(const GradContext& c, const char* name) {
  return c.op().node()->attrs().GetOr<bool>(name, false);
}

// --- Products -----------------------------------------------------------------------------------
Output Product(const Scope& s, const Output& a, const Output& b, bool adj_a = false,
               bool adj_b = false) {
  return ops::BatchMatMulV2(s, a, b, {.adj_x = adj_a, .adj_y = adj_b});
}

// The dimensions in front of the matrices, as a vector.
Output BatchDims(const Scope& s, const Output& shape) {
  const Output count = ops::Reshape(s, ops::Sub(s, ops::Size(s, shape), 2), {1});
  return ops::Slice(s, shape, {0}, count);
}

// Sums over the batch dimensions along which broadcasting repeated a matrix.
void SetBatchGradients(GradContext& c, const Output& dx, const Output& dy) {
  const Scope& s = c.scope();
  const Output sx = ops::Shape(s, c.x(0)), sy = ops::Shape(s, c.x(1));
  const auto axes = ops::BroadcastGradientArgs(s, BatchDims(s, sx), BatchDims(s, sy));
  c.set_dx(0, ops::Reshape(s, ops::Sum(s, dx, axes.r0), sx));
  c.set_dx(1, ops::Reshape(s, ops::Sum(s, dy, axes.r1), sy));
}

Status BatchMatMulGrad(GradContext& c) {
  const Scope& s = c.scope();
  for (const int i : {0, 1}) {
    const DataType type = BaseType(c.x(i).dtype()), product = BaseType(c.dy().dtype());
    if (type == product) continue;
    return errors::Unimplemented("a product of ", DataTypeName(product), " has no gradient by its ",
                                 i == 0 ? "left" : "right", " operand of ", DataTypeName(type));
  }
  const bool ax = Flag(c, "adj_x"), ay = Flag(c, "adj_y");
  const Output x = c.x(0), y = c.x(1), g = c.dy();
  SetBatchGradients(c, ax ? Product(s, y, g, ay, true) : Product(s, g, y, false, !ay),
                    ay ? Product(s, g, x, true, ax) : Product(s, x, g, !ax, false));
  return OkStatus();
}

// Of two dense matrices that may have many zeros; products are floats, whatever the operands are.
Status SparseMatMulGrad(GradContext& c) {
  const Scope& s = c.scope();
  const bool ta = Flag(c, "transpose_a"), tb = Flag(c, "transpose_b");
  const bool a_sparse = Flag(c, "a_is_sparse"), b_sparse = Flag(c, "b_is_sparse");
  const Output a = c.x(0), b = c.x(1), dy = c.dy();
  const auto cast = [&](const Output& dx, const Output& x) {
    const DataType type = BaseType(x.dtype());
    return type == BaseType(dx.dtype()) ? dx : ops::Cast(s, dx, type);
  };
  // da = dy op(b)^T, or its transpose if a was transposed; db likewise.
  const Output da =
      ta ? ops::SparseMatMul(s, b, dy,
                             {.transpose_a = tb, .transpose_b = true, .a_is_sparse = b_sparse})
         : ops::SparseMatMul(s, dy, b, {.transpose_b = !tb, .b_is_sparse = b_sparse});
  const Output db =
      tb ? ops::SparseMatMul(s, dy, a,
                             {.transpose_a = true, .transpose_b = ta, .b_is_sparse = a_sparse})
         : ops::SparseMatMul(s, a, dy, {.transpose_a = !ta, .a_is_sparse = a_sparse});
  c.set_dx(0, cast(da, a));
  c.set_dx(1, cast(db, b));
  return OkStatus();
}

// Of a sparse matrix (indices, values, shape) and a dense one.
Status SparseTensorDenseMatMulGrad(GradContext& c) {
  const Scope& s = c.scope();
  const bool adj_a = Flag(c, "adjoint_a"), adj_b = Flag(c, "adjoint_b");
  const auto adjoint = [&](const Output& m) {
    return ops::Transpose(s, Conjugate(s, m), Tensor::FromValues<int32_t>({1, 0}));
  };
  if (c.needs_dx(3)) {
    const Output db =
        ops::SparseTensorDenseMatMul(s, c.x(0), c.x(1), c.x(2), c.dy(), {.adjoint_a = !adj_a});
    c.set_dx(3, adj_b ? adjoint(db) : db);
  }
  if (!c.needs_dx(1)) return OkStatus();
  const std::vector<Output> places = ops::Unpack(s, c.x(0), 2, {.axis = 1});
  if (places.size() != 2) return OkStatus();  // recorded in the graph's status
  const Output b = adj_b ? adjoint(c.x(3)) : c.x(3);
  const Output by_a = ops::Gather(s, c.dy(), places[adj_a ? 1 : 0]);
  const Output by_b = ops::Gather(s, b, places[adj_a ? 0 : 1]);
  const Output sum = ops::Sum(s, ops::Mul(s, by_a, Conjugate(s, by_b)), {1});
  c.set_dx(1, adj_a ? Conjugate(s, sum) : sum);
  return OkStatus();
}

// --- Diagonals and bands ------------------------------------------------------------------------
std::string Align(const GradContext& c) {
  // The first two forms know no other alignment.
  const bool has_align = c.op().node()->type().ends_with("V3");
  return c.op().node()->attrs().GetOr<std::string>("align", has_align ? "RIGHT_LEFT" : "LEFT_LEFT");
}
// Which diagonals, input i; the main one where the op has no such input.
Input K(const GradContext& c, int i) { return i < c.op().num_inputs() ? Input(c.x(i)) : Input(0); }
Output DiagonalsOf(GradContext& c, const Output& matrix, const Input& k) {
  return ops::MatrixDiagPartV3(c.scope(), matrix, k, ConstantLike(c.scope(), matrix, 0),
                               {.align = Align(c)});
}

Status DiagGrad(GradContext& c) {
  c.set_dx(0, ops::DiagPart(c.scope(), c.dy()));
  return OkStatus();
}
Status DiagPartGrad(GradContext& c) {
  c.set_dx(0, ops::Diag(c.scope(), c.dy()));
  return OkStatus();
}
Status MatrixDiagGrad(GradContext& c) {
  c.set_dx(0, DiagonalsOf(c, c.dy(), K(c, 1)));
  return OkStatus();
}
Status MatrixDiagPartGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(
      0, ops::MatrixSetDiagV3(s, ops::ZerosLike(s, c.x(0)), c.dy(), K(c, 1), {.align = Align(c)}));
  return OkStatus();
}
Status MatrixSetDiagGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(
      0, ops::MatrixSetDiagV3(s, c.dy(), ops::ZerosLike(s, c.x(1)), K(c, 2), {.align = Align(c)}));
  c.set_dx(1, DiagonalsOf(c, c.dy(), K(c, 2)));
  return OkStatus();
}
Status MatrixBandPartGrad(GradContext& c) {
  c.set_dx(0, ops::MatrixBandPart(c.scope(), c.dy(), c.x(1), c.x(2)));
  return OkStatus();
}

Status ConjugateTransposeGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output back = ops::InvertPermutation(s, c.x(1));
  c.set_dx(0, ops::ConjugateTranspose(s, c.dy(), back));
  return OkStatus();
}

Status CrossGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Cross(s, c.x(1), c.dy()));
  c.set_dx(1, ops::Cross(s, c.dy(), c.x(0)));
  return OkStatus();
}

// --- Inverses and solutions ---------------------------------------------------------------------
// With y the inverse of x: dx = -y^H dy y^H.
Status MatrixInverseGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output y = c.y();
  const Output dx = Flag(c, "adjoint") ? Product(s, y, Product(s, c.dy(), y, true, false))
                                       : Product(s, y, Product(s, c.dy(), y, false, true), true);
  c.set_dx(0, ops::Neg(s, dx));
  return OkStatus();
}

// A number for each matrix, as a matrix that broadcasts.
Output AsMatrix(const Scope& s, const Output& numbers) {
  return ops::ExpandDims(s, ops::ExpandDims(s, numbers, -1), -1);
}

Status MatrixDeterminantGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output inverse = ops::MatrixInverse(s, c.x(0), {.adjoint = true});
  const Output factor = ops::Mul(s, c.dy(), Conjugate(s, c.y()));
  c.set_dx(0, ops::Mul(s, AsMatrix(s, factor), inverse));
  return OkStatus();
}

// The sign changes nowhere.
Status LogMatrixDeterminantGrad(GradContext& c) {
  const Scope& s = c.scope();
  if (!c.dy(1).valid()) return OkStatus();
  const Output inverse = ops::MatrixInverse(s, c.x(0), {.adjoint = true});
  c.set_dx(0, ops::Mul(s, AsMatrix(s, c.dy(1)), inverse));
  return OkStatus();
}

// Of a y = b, or a^H y = b: `db` solves the adjoint problem for dy.
Output ByMatrix(GradContext& c, const Output& db) {
  const Scope& s = c.scope();
  return ops::Neg(s, Flag(c, "adjoint") ? Product(s, c.y(), db, false, true)
                                        : Product(s, db, c.y(), false, true));
}

Status MatrixSolveGrad(GradContext& c) {
  const Output db = ops::MatrixSolve(c.scope(), c.x(0), c.dy(), {.adjoint = !Flag(c, "adjoint")});
  c.set_dx(1, db);
  if (c.needs_dx(0)) c.set_dx(0, ByMatrix(c, db));
  return OkStatus();
}

Status MatrixTriangularSolveGrad(GradContext& c) {
  const Scope& s = c.scope();
  const bool lower = c.op().node()->attrs().GetOr<bool>("lower", true);
  const Output db = ops::MatrixTriangularSolve(s, c.x(0), c.dy(),
                                               {.lower = lower, .adjoint = !Flag(c, "adjoint")});
  // The other triangle is never looked at.
  const int64_t below = lower ? -1 : 0, above = lower ? 0 : -1;
  SetBatchGradients(c, ops::MatrixBandPart(s, ByMatrix(c, db), below, above), db);
  return OkStatus();
}

// With x = l l^H and i the inverse of l: dx = i^H m i, made equal to its adjoint, where m is the
// lower triangle of l^H dl with half of its diagonal.
Status CholeskyGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output l = c.y(), inverse = ops::MatrixInverse(s, l);
  const Output both = Product(s, l, c.dy(), true);
  const Output diagonal = DiagonalsOf(c, both, 0);
  const Output halved =
      ops::MatrixSetDiagV3(s, both, ops::Mul(s, diagonal, ConstantLike(s, diagonal, .5)), 0);
  const Output m = ops::MatrixBandPart(s, halved, int64_t{-1}, int64_t{0});
  const Output left = Product(s, inverse, m, true), right = Product(s, inverse, m, true, true);
  const Output sum = Product(s, ops::Add(s, left, right), inverse);
  c.set_dx(0, ops::Mul(s, sum, ConstantLike(s, sum, .5)));
  return OkStatus();
}

}  // namespace

void RegisterMatrixGradients(GradientRegistry& r) {
  for (const char* op : {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}) {
    r.Register(op, BatchMatMulGrad);
  }
  r.Register("SparseMatMul", SparseMatMulGrad);
  r.Register("SparseTensorDenseMatMul", SparseTensorDenseMatMulGrad);
  r.Register("Diag", DiagGrad);
  r.Register("DiagPart", DiagPartGrad);
  for (const char* version : {"", "V2", "V3"}) {
    r.Register(StrCat("MatrixDiag", version), MatrixDiagGrad);
    r.Register(StrCat("MatrixDiagPart", version), MatrixDiagPartGrad);
    r.Register(StrCat("MatrixSetDiag", version), MatrixSetDiagGrad);
  }
  r.Register("MatrixBandPart", MatrixBandPartGrad);
  r.Register("ConjugateTranspose", ConjugateTransposeGrad);
  r.Register("Cross", CrossGrad);
  r.Register("MatrixInverse", MatrixInverseGrad);
  r.Register("MatrixDeterminant", MatrixDeterminantGrad);
  r.Register("LogMatrixDeterminant", LogMatrixDeterminantGrad);
  r.Register("MatrixSolve", MatrixSolveGrad);
  r.Register("MatrixTriangularSolve", MatrixTriangularSolveGrad);
  r.Register("Cholesky", CholeskyGrad);
}

}  // namespace millrace
