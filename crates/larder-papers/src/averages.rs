//! Averages of figures.
//!
//! It does not weigh them.

/// Returns the mean; none of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the median; none of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied()?;
    let lower = values.get((values.len() - 1) / 2).copied()?;
    Some((lower + upper) / 2.0)
}
