//! What talks to peers, in a thread of its own: keys never wait for a network.

use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use tokio::sync::mpsc as asynchronous;

use super::model::{LINES_MAX, Page, Shown};
use crate::chirp::Chirp;
use crate::error::Error;
use crate::list::AppendMode;
use crate::name::UserName;
use crate::remote::Remote;
use crate::signature::UserKey;
use crate::text::Text;
use crate::timeline::{self, Line, Timeline, seals};

/// Between two looks for what is new, or four times as long as one takes.
const LOOK: Duration = Duration::from_millis(800);
/// What is known by then is shown, and again after as long.
const BATCH: Duration = Duration::from_millis(400);
/// So many of each user's chirps are read.
const EACH: usize = 100;
const RETRY: Duration = Duration::from_secs(1);

/// With what it begins.
#[derive(Clone)]
pub struct Start {
    /// Where peers are: `HOST:PORT`.
    pub addresses: Vec<String>,
    /// Their password.
    pub password: Option<String>,
    /// How to append.
    pub mode: AppendMode,
    /// Who it is; `None`: the person is asked.
    pub user: Option<UserName>,
    /// With what posts are signed.
    pub key: Option<std::sync::Arc<UserKey>>,
}

/// What the person at the keyboard wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Be this user, who has signed up.
    Be(UserName),
    SignUp(UserName),
    Post(Text),
    Follow(UserName),
    Unfollow(UserName),
    Page(UserName),
}

/// What has come to be known.
#[derive(Debug)]
pub(crate) enum News {
    Connected(String),
    /// This is who it is from now on.
    Is(UserName),
    Lines(Vec<Shown>),
    /// Everybody has been read once.
    Read,
    Following(Vec<UserName>),
    Page(Box<Page>),
    /// What was asked for is done.
    Done(Ask, String),
    /// What was asked for is not.
    Failed(Ask, Error),
    /// Nothing was asked for, and something is wrong.
    Trouble(Error),
    /// It is not wrong any more.
    Recovered,
}

/// The other side has gone.
struct Gone;

/// Works until nobody listens any more.
pub(crate) fn work(start: Start, asks: Receiver<Ask>, tell: Sender<News>) {
    let (send, receive) = asynchronous::unbounded_channel();
    // What comes from a thread has to wait for a thread.
    std::thread::spawn(move || {
        while let Ok(ask) = asks.recv() {
            if send.send(ask).is_err() {
                return;
            }
        }
    });
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => drop(runtime.block_on(Worker { start, tell }.run(receive))),
        Err(error) => drop(tell.send(News::Trouble(Error::Refused(format!("cannot start: {error}"))))),
    }
}

struct Worker {
    start: Start,
    tell: Sender<News>,
}

impl Worker {
    fn tell(&self, news: News) -> Result<(), Gone> {
        self.tell.send(news).map_err(|_| Gone)
    }

    async fn run(mut self, mut asks: asynchronous::UnboundedReceiver<Ask>) -> Result<(), Gone> {
        let chirp = loop {
            match Remote::connect(&self.start.addresses, self.start.password.as_deref()).await {
                Ok(remote) => break Chirp::new(remote, self.start.mode),
                Err(error) => self.tell(News::Trouble(error))?,
            }
            tokio::time::sleep(RETRY).await;
        };
        self.tell(News::Connected(chirp.store().address().await))?;
        self.tell(News::Recovered)?;
        // Who it is at the beginning has to have signed up like anybody.
        let (mut next, mut user) = (self.start.user.take().map(Ask::Be), None);
        loop {
            if let Some(ask) = next.take()
                && let Some(other) = self.become_user(&chirp, ask).await?
            {
                user = Some(other);
            }
            // Until it is known who it is, there is nothing to look at.
            next = Some(match &user {
                None => asks.recv().await.ok_or(Gone)?,
                Some(user) => self.look_after(&chirp, user, &mut asks).await?,
            });
        }
    }

    /// Whose name is taken or used from now on, where that goes well.
    async fn become_user(&self, chirp: &Chirp<Remote>, ask: Ask) -> Result<Option<UserName>, Gone> {
        let became = match &ask {
            Ask::Be(name) => chirp.profile(name).await.map(|profile| profile.name),
            Ask::SignUp(name) => chirp.sign_up(name, self.start.key.as_deref()).await.map(|()| name.clone()),
            _ => return Ok(None),
        };
        match became {
            Ok(name) => {
                self.tell(News::Is(name.clone()))?;
                Ok(Some(name))
            }
            Err(error) => {
                self.tell(News::Failed(ask, error))?;
                Ok(None)
            }
        }
    }

    /// Looks for what is new, and does what is asked; ends with what is not for this user to do.
    async fn look_after(
        &self,
        chirp: &Chirp<Remote>,
        user: &UserName,
        asks: &mut asynchronous::UnboundedReceiver<Ask>,
    ) -> Result<Ask, Gone> {
        let mut timeline: Option<Timeline> = None;
        let mut is_troubled = false;
        loop {
            let since = Instant::now();
            let looked = async {
                match &mut timeline {
                    Some(timeline) => self.look(chirp, timeline).await,
                    None => Ok(match Timeline::open(chirp, user).await {
                        Ok(opened) => self.read_all(chirp, timeline.insert(opened)).await?,
                        Err(error) => Err(error),
                    }),
                }
            };
            let mut looked = pin!(looked);
            // What is asked does not wait for a look, which may take long where a part of the network is down.
            let looked = loop {
                let ask = tokio::select! {
                    looked = &mut looked => break looked?,
                    ask = asks.recv() => ask.ok_or(Gone)?,
                };
                if matches!(ask, Ask::Be(_) | Ask::SignUp(_)) {
                    return Ok(ask);
                }
                self.carry_out(chirp, user, ask).await?;
            };
            match looked {
                Ok(()) if is_troubled => {
                    is_troubled = false;
                    self.tell(News::Connected(chirp.store().address().await))?;
                    self.tell(News::Recovered)?;
                }
                Ok(()) => {}
                Err(error) => {
                    is_troubled = true;
                    self.tell(News::Trouble(error))?;
                }
            }
            let mut pause = pin!(tokio::time::sleep(LOOK.max(since.elapsed() * 4)));
            let ask = tokio::select! {
                () = &mut pause => continue,
                ask = asks.recv() => ask.ok_or(Gone)?,
            };
            if matches!(ask, Ask::Be(_) | Ask::SignUp(_)) {
                return Ok(ask);
            }
            self.carry_out(chirp, user, ask).await?;
        }
    }

    /// Everybody's last chirps, as they come.
    async fn read_all(&self, chirp: &Chirp<Remote>, timeline: &mut Timeline) -> Result<Result<(), Error>, Gone> {
        self.tell(News::Following(timeline.following()))?;
        let show = async |lines| self.show(chirp, lines).await;
        let failed = timeline.read_all(chirp, (EACH, LINES_MAX), BATCH, show).await?;
        self.tell(News::Read)?;
        Ok(failed.into_iter().next_back().map_or(Ok(()), Err))
    }

    async fn look(&self, chirp: &Chirp<Remote>, timeline: &mut Timeline) -> Result<Result<(), Error>, Gone> {
        let before = timeline.following();
        let (lines, errors) = match timeline.poll(chirp, EACH).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let following = timeline.following();
        if following != before {
            self.tell(News::Following(following))?;
        }
        self.show(chirp, lines).await?;
        Ok(errors.into_iter().next().map_or(Ok(()), Err))
    }

    async fn show(&self, chirp: &Chirp<Remote>, lines: Vec<Line>) -> Result<(), Gone> {
        match lines.is_empty() {
            true => Ok(()),
            false => self.tell(News::Lines(with_seals(chirp, lines).await)),
        }
    }

    async fn carry_out(&self, chirp: &Chirp<Remote>, user: &UserName, ask: Ask) -> Result<(), Gone> {
        let done = match &ask {
            Ask::Post(text) => chirp.post(user, text, self.start.key.as_deref()).await.map(|_| "posted".to_owned()),
            Ask::Follow(other) => chirp.follow(user, other).await.map(|is_new| match is_new {
                true => format!("you follow {other} from now on"),
                false => format!("you follow {other} already"),
            }),
            Ask::Unfollow(other) => {
                chirp.unfollow(user, other).await.map(|()| format!("you do not follow {other} any more"))
            }
            Ask::Page(other) => match timeline::Page::read(chirp, other, EACH).await {
                Ok(timeline::Page { profile, count, follows, lines }) => {
                    let lines = with_seals(chirp, lines).await;
                    return self.tell(News::Page(Box::new(Page { profile, count, follows, lines })));
                }
                Err(error) => Err(error),
            },
            Ask::Be(_) | Ask::SignUp(_) => return Ok(()),
        };
        match done {
            Ok(text) => self.tell(News::Done(ask, text)),
            Err(error) => self.tell(News::Failed(ask, error)),
        }
    }
}

async fn with_seals(chirp: &Chirp<Remote>, lines: Vec<Line>) -> Vec<Shown> {
    let seals = seals(chirp, &lines).await;
    lines.into_iter().zip(seals).map(|(line, seal)| Shown { line, seal }).collect()
}
